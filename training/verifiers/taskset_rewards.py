"""A verifier for tasks of verifiers v1 tasksets: their own rewards, run on the recorded answer in the taskset's environment."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import SettingsError, VenvFailed, VerifierFailed, WorldFailed
from ledger.settings import Settings
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict
from training.worlds.verifiers_tasks import conversation, opened_taskset


def taskset_rewards(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of the task's `@vf.reward` methods on the conversation that ends with the answer handed in.

    `answered` passes when an answer was handed in; without one nothing is scored. Then there is one condition a reward, outside the basis:
    passed when its score is at least 1. A reward that raised, needs a runtime or gave no finite number is an error, and so is `total`;
    otherwise `total` passes when the weighted sum of the scores is at least the spec's `at_least`.

    Args:
        s0: not used.
        s_end: view with `answer`.
        trace: not used.
        task: its spec says which taskset it is of, its messages and `at_least`.
        ask: not used; a task with a judge is refused when it is made.
    Raises:
        VerifierFailed: the taskset cannot be opened, is not the one that the bundle was made from, or its worker broke.
    """
    answer = s_end["answer"]
    if answer is None:
        return Verdict((Condition("answered", "failed", {"answer": None}),))
    draft = task.draft
    try:
        world = opened_taskset(Settings().data_dir, json.dumps(draft.spec["opened"], sort_keys=True))
        scored = world.ask("score", task=draft.initial_state, messages=conversation(draft, answer))
    except (SettingsError, VenvFailed, WorldFailed) as error:
        raise VerifierFailed(f"the taskset of {draft.name!r} gave no verdict: {error}") from error
    each = [_reward(name, one) for name, one in sorted(scored.items())]
    return Verdict((Condition("answered", "passed"), *each, _total(scored, each, draft.spec["at_least"])))


def _reward(name: str, one: Mapping[str, Any]) -> Condition:
    scores = list(one.get("scores", {}).values())
    if not scores or not all(_is_number(score) for score in scores):
        return Condition(f"reward:{name}", "error", dict(one), in_basis=False)
    return Condition(f"reward:{name}", "passed" if math.fsum(scores) >= 1.0 else "failed", dict(one), in_basis=False)


def _total(scored: Mapping[str, Mapping[str, Any]], each: Sequence[Condition], at_least: float) -> Condition:
    failed = [condition.name for condition in each if condition.status == "error"]
    if failed or not each:
        return Condition("total", "error", {"at_least": at_least, "without_score": failed})
    total = math.fsum(one["weight"] * score for one in scored.values() for score in one["scores"].values())
    return Condition("total", "passed" if total >= at_least else "failed", {"at_least": at_least, "total": total})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
