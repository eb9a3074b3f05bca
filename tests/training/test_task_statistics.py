"""Statistics a task: what is counted, and what is counted beside it."""

import numpy as np
import pytest

from training.rewards import Scored
from training.task_statistics import task_statistics
from training.view import Bools, RolloutView


def view_of(bundles: list[str], outcomes: list[str], ended_by: list[str] | None = None) -> RolloutView:
    """A view without steps or rows."""
    n, ints, none = len(bundles), np.zeros(0, np.int64), ("",) * len(bundles)
    return RolloutView(
        rollout_id_R=tuple(f"r{i}" for i in range(n)), group_id_R=none, bundle_id_R=tuple(bundles), family_R=none, kind_R=none,
        participant_R=none, fork_R=none, model_version_R=none, ended_by_R=tuple(ended_by or none), outcome_R=tuple(outcomes),
        rollout_S=ints, call_id_S=(), state_S=(), reward_S=np.zeros(0), error_S=(), rollout_Q=ints, row_T=ints, step_T=ints,
        id_T=np.zeros(0, np.int32), mask_T=np.zeros(0, np.bool_), behaviour_logprob_T=np.zeros(0),
    )  # fmt: skip


def scored(*values: float | None) -> Scored:
    return Scored(values, ("",) * len(values))


def votes(*voting: int) -> Bools:
    return np.array(voting, dtype=np.bool_)


def test_what_broke_is_beside_the_count_and_moves_no_number() -> None:
    outcomes = ["succeeded", "succeeded", "task_failed", "env_failed", "verifier_failed", "harness_failed", "aborted", "unknown"]
    reward = scored(1.0, 1.0, 0.0, 0.0, 0.0, 0.0, None, None)
    (found,) = task_statistics(view_of(["a"] * 8, outcomes), reward, votes(1, 1, 1, 0, 0, 0, 0, 0))
    assert (found.n, found.mean, found.var_pop) == (3, pytest.approx(2 / 3), pytest.approx(2 / 9))
    assert found.std_unbiased == pytest.approx(0.57735, abs=1e-5)
    assert found.pass_rate == pytest.approx(2 / 3)
    assert (found.env_failed, found.verifier_failed, found.harness_failed, found.unknown) == (1, 1, 1, 1)


def test_a_limit_is_counted_apart_and_in_n_where_it_votes() -> None:
    outcomes, ended_by = ["succeeded", "limit_ended", "limit_ended", "succeeded"], ["finished", "turn_limit", "token_limit", "wall_clock"]
    view, reward = view_of(["a"] * 4, outcomes, ended_by), scored(1.0, 0.0, None, 1.0)
    (kept,), (left,) = task_statistics(view, reward, votes(1, 1, 0, 1)), task_statistics(view, reward, votes(1, 0, 0, 0))
    assert (kept.n, kept.mean, kept.limit_ended, kept.unknown) == (3, pytest.approx(2 / 3), 3, 0)
    assert (left.n, left.mean, left.limit_ended, left.unknown) == (1, 1.0, 3, 0)


def test_tasks_stand_in_order_and_nothing_counted_has_no_numbers() -> None:
    view = view_of(["b", "a", "b"], ["succeeded", "env_failed", "task_failed"])
    found = task_statistics(view, scored(0.5, 0.0, 0.25), votes(1, 0, 1))
    assert [(one.bundle_id, one.n, one.mean) for one in found] == [("b", 2, 0.375), ("a", 0, None)]
    assert (found[1].pass_rate, found[1].std_unbiased, found[1].var_pop) == (None, None, None)


def test_one_rollout_has_no_unbiased_spread() -> None:
    (found,) = task_statistics(view_of(["a"] * 2, ["succeeded", "succeeded"]), scored(1.0, None), votes(1, 0))
    assert (found.n, found.var_pop, found.std_unbiased, found.unknown) == (1, 0.0, None, 0)
