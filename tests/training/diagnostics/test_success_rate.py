"""Success among what says something about the policy."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics


def measure(*outcomes: str) -> dict[str, Measured]:
    rolled = tuple(Rolled(outcome=outcome) for outcome in outcomes)
    tokens = np.zeros(2 * len(rolled))
    return dict(diagnostics["success_rate"](view_of(*rolled), reward_of(*rolled), UpdateColumns(tokens, tokens)))


def test_by_hand() -> None:
    told = measure("succeeded", "task_failed", "limit_ended", "env_failed", "verifier_failed")
    assert (told["success_rate"].value, told["success_rate"].n, told["excluded"].value) == (pytest.approx(1 / 3), 3, pytest.approx(0.4))
    assert told["success_rate"].caveats == ("1 env_failed left out", "1 verifier_failed left out")


def test_a_broken_environment_changes_no_rate() -> None:
    assert (
        measure("succeeded", "task_failed", *["env_failed"] * 3)["success_rate"].value
        == measure("succeeded", "task_failed")["success_rate"].value
    )


def test_with_nothing_judged_there_is_no_rate() -> None:
    assert measure("unknown", "harness_failed")["success_rate"].value is None
    assert measure()["excluded"].value is None


def test_an_unknown_parameter_is_refused() -> None:
    with pytest.raises(MethodError, match="takes no parameter 'strict'"):
        diagnostics.bind("success_rate", strict=True)
