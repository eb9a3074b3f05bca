"""Ways to build supervised rows: numbers by hand, an invariant and a refusal each."""

from typing import Any

import numpy as np
import pytest

from ledger.errors import MethodError
from training.examples import examples
from training.rewards import Scored
from training.rows import Row
from training.view import RolloutView


def view_of(bundles: list[str], order: list[int] | None = None) -> RolloutView:
    places = order or list(range(len(bundles)))
    count, none, text = len(bundles), np.zeros(0, dtype=np.int64), ("",) * len(bundles)
    return RolloutView(
        rollout_id_R=tuple(f"r{place}" for place in places), group_id_R=text, bundle_id_R=tuple(bundles[place] for place in places),
        family_R=text, kind_R=("ordinary",) * count, participant_R=("agent",) * count, fork_R=text, model_version_R=text,
        ended_by_R=("finished",) * count, outcome_R=text, rollout_S=none, call_id_S=(), state_S=(), reward_S=np.zeros(0), error_S=(),
        rollout_Q=none, row_T=none, step_T=none, id_T=np.zeros(0, dtype=np.int32), mask_T=np.zeros(0, dtype=np.bool_),
        behaviour_logprob_T=np.zeros(0),
    )  # fmt: skip


def row(rollout: int, index: int = 0, *, text_only: bool = False, learns: bool = True) -> Row:
    ids = np.array([rollout, index, 9], dtype=np.int32)
    mask = np.array([False, False, learns])
    logprob = np.array([np.nan, np.nan, np.nan if text_only else -0.5], dtype=np.float32)
    return Row(f"r{rollout}", index, "agent", ids, mask, logprob, np.array([-1, -1, 0]), ("c",), "start", text_only=text_only)


def reward(*values: float | None) -> Scored:
    return Scored(tuple(values), tuple("" for _ in values))


ROWS = [row(0), row(1, 1), row(1, 0), row(2), row(3), row(4, learns=False)]
VIEW = view_of(["a", "a", "a", "b", "b"])


def built(name: str, view: RolloutView, rows: list[Row], scores: Scored, *, seed: int = 0, **params: Any) -> Any:
    return examples.bind(name, **params).call(view, rows, scores, seed)


def test_all_rollouts_gives_every_row_in_order_and_names_those_without_a_token_to_learn() -> None:
    found = built("all_rollouts", VIEW, ROWS, reward(None, 0.0, 1.0, 0.0, 1.0), weight=0.5)
    assert [(e.row.rollout_id, e.row.index, e.weight) for e in found.examples] == [
        ("r0", 0, 0.5), ("r1", 0, 0.5), ("r1", 1, 0.5), ("r2", 0, 0.5), ("r3", 0, 0.5),
    ]  # fmt: skip
    assert found.left_out == {"no row with a token to learn": ("r4",)}


def test_passed_rollouts_keeps_reward_one_alone_and_says_why_of_the_others() -> None:
    found = built("passed_rollouts", VIEW, ROWS, reward(1.0, 1.0, 0.0, 0.99, None))
    assert [(e.row.rollout_id, e.row.index) for e in found.examples] == [("r0", 0), ("r1", 0), ("r1", 1)]
    assert found.left_out == {"failed": ("r2", "r3"), "no reward": ("r4",)}


def test_passed_rollouts_takes_at_most_so_many_of_a_task_whatever_the_order() -> None:
    bundles = ["a"] * 6 + ["b"]
    rows = [row(number) for number in range(7)]
    ones = reward(*[1.0] * 7)
    found = built("passed_rollouts", view_of(bundles), rows, ones, per_task=2)
    chosen = {e.row.rollout_id for e in found.examples}
    assert len(chosen) == 3 and "r6" in chosen
    assert len(found.left_out["enough of this task"]) == 4
    turned = built("passed_rollouts", view_of(bundles, [6, 5, 4, 3, 2, 1, 0]), rows, ones, per_task=2)
    assert {e.row.rollout_id for e in turned.examples} == chosen
    others = [built("passed_rollouts", view_of(bundles), rows, ones, seed=seed, per_task=2).examples for seed in range(8)]
    assert len({tuple(sorted(e.row.rollout_id for e in some)) for some in others}) > 1


@pytest.mark.parametrize("name", examples.names())
def test_sampled_tokens_stay_as_they_are(name: str) -> None:
    sampled, text = row(0), row(1, text_only=True)
    found = built(name, view_of(["a", "b"]), [sampled, text], reward(1.0, 1.0))
    assert [e.row for e in found.examples] == [sampled, text]
    assert [e.row.text_only for e in found.examples] == [False, True]


@pytest.mark.parametrize("name", examples.names())
def test_a_negative_weight_and_a_foreign_row_are_refused(name: str) -> None:
    with pytest.raises(MethodError, match="weight is -1"):
        built(name, VIEW, ROWS, reward(*[1.0] * 5), weight=-1)
    with pytest.raises(MethodError, match="a row of rollout r9"):
        built(name, VIEW, [row(9)], reward(*[1.0] * 5))


def test_passed_rollouts_refuses_a_reward_of_another_length_and_no_rollout_a_task() -> None:
    with pytest.raises(MethodError, match="1 rewards for 5 rollouts"):
        built("passed_rollouts", VIEW, ROWS, reward(1.0))
    with pytest.raises(MethodError, match="per_task is 0"):
        built("passed_rollouts", VIEW, ROWS, reward(*[1.0] * 5), per_task=0)
