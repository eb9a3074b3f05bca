"""Where the bounds of the ratio hold."""

import numpy as np
import pytest

from ledger.errors import MethodError
from tests.view_builder import Rolled, reward_of, view_of
from training.diagnostics import Measured, UpdateColumns, diagnostics

ONE = Rolled(1.0, (4,), context=0)
VIEW = view_of(ONE)


def measure(ratios: list[float], adv: list[float], **params: float) -> dict[str, Measured]:
    columns = {"proximal": np.full(4, -3.0), "new": -3.0 + np.log(ratios)}
    return dict(diagnostics.bind("clip_fraction", **params).call(VIEW, reward_of(ONE), UpdateColumns(np.array(adv), np.ones(4), columns)))


def test_by_hand_a_bound_holds_only_on_the_side_that_the_advantage_pushes_to() -> None:
    told = measure([0.5, 0.5, 1.5, 1.0], [1.0, -1.0, 1.0, 1.0])
    assert (told["outside"].value, told["clipped"].value) == (0.75, 0.5)
    assert (told["ratio_max"].value, told["ratio_min"].value) == pytest.approx((1.5, 0.5))


def test_it_is_the_share_that_the_objective_reports() -> None:
    import torch

    from training.objectives import LossBatch, Outputs, objectives

    ratios, adv = [0.7, 1.29, 1.27, 3.0], [-1.0, 1.0, 1.0, -0.5]
    new_T = torch.tensor(-3.0 + np.log(ratios), requires_grad=True)
    batch = LossBatch(
        torch.ones(4, dtype=torch.bool), torch.tensor(adv, dtype=torch.float64), {"proximal": torch.full((4,), -3.0, dtype=torch.float64)}
    )
    assert measure(ratios, adv)["clipped"].value == objectives["ppo_clip"](Outputs(new_T), batch)[1]["clip_fraction"] == 0.5


def test_without_the_new_column_there_is_no_number() -> None:
    told = diagnostics["clip_fraction"](VIEW, reward_of(ONE), UpdateColumns(np.zeros(4), np.zeros(4), {"proximal": np.zeros(4)}))
    assert {(one.value, one.n, one.caveats) for one in told.values()} == {(None, 0, ("no column new",))}


def test_a_negative_bound_is_refused() -> None:
    with pytest.raises(MethodError, match=r"eps_low -0\.1"):
        measure([1.0] * 4, [1.0] * 4, eps_low=-0.1)
