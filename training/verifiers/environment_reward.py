"""A verifier for worlds that reward by themselves: the episode reached its own end with the return that the task asks for."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ledger.errors import VerifierFailed
from training.verifiers import Condition, JudgeTask, TraceStep, Verdict

_REWARDS_SHOWN = 50
_ENDS = ("terminated", "any")


def environment_reward(s0: Any, s_end: Any, trace: Sequence[TraceStep], task: JudgeTask, *, ask: Any = None) -> Verdict:
    """The verdict of the environment's own rewards, from the part `episode` of the end state's view.

    `terminal` passes when the environment ended the episode; where the spec's `ends` is `any`, a time limit does as well, and where it is
    None the condition is left out. `reward` passes when the sum of the rewards is at least the spec's `at_least`; it is an error, not a
    zero, when a reward of an episode is missing or no finite number, except that missing rewards before the last step are left out of the
    sum where the spec's `sparse` is true. `goal`, where the spec names a `goal`, passes when the environment's flag of that name is true.

    Args:
        s0: not used.
        s_end: view with `episode`: `terminated`, `truncated`, `steps` and `rewards`, one number or None a step.
        trace: not used.
        task: its spec holds `at_least`, and optionally `ends`, `sparse` and `goal`.
        ask: not used.
    Raises:
        VerifierFailed: the view has no episode, or the spec no threshold.
    """
    episode = s_end.get("episode") if isinstance(s_end, Mapping) else None
    at_least = task.draft.spec.get("at_least")
    ends = task.draft.spec.get("ends", "terminated")
    if not isinstance(episode, Mapping) or not {"terminated", "truncated", "steps", "rewards"} <= episode.keys():
        raise VerifierFailed(f"the end state has no episode with terminated, truncated, steps and rewards; seen {str(s_end)[:80]}")
    if at_least is None or not _is_number(at_least) or (ends is not None and ends not in _ENDS):
        raise VerifierFailed(f"bundle {task.draft.name!r}: spec.at_least must be a number and spec.ends one of {_ENDS} or None")
    conditions = [] if ends is None else [_terminal(episode, ends)]
    conditions.append(_reward(episode["rewards"], float(at_least), sparse=bool(task.draft.spec.get("sparse"))))
    goal = task.draft.spec.get("goal")
    if goal is not None:
        status = episode.get(goal)
        evidence = {"flag": goal, "value": status}
        conditions.append(Condition("goal", ("passed" if status else "failed") if isinstance(status, bool) else "error", evidence))
    return Verdict(tuple(conditions))


def _terminal(episode: Mapping[str, Any], ends: str) -> Condition:
    reached = episode["terminated"] or (ends == "any" and episode["truncated"])
    evidence = {"ends": ends, **{name: episode[name] for name in ("terminated", "truncated", "steps")}}
    return Condition("terminal", "passed" if reached else "failed", evidence)


def _reward(rewards: Sequence[Any], at_least: float, *, sparse: bool) -> Condition:
    counted = [reward for reward in rewards[:-1] if reward is not None] + list(rewards[-1:]) if sparse else list(rewards)
    evidence = {"at_least": at_least, "steps": len(rewards), "last_rewards": list(rewards[-_REWARDS_SHOWN:])}
    unusable = [at for at, reward in enumerate(counted) if not _is_number(reward)]
    if unusable:
        return Condition("reward", "error", {**evidence, "unusable": unusable[:_REWARDS_SHOWN]})
    total = math.fsum(counted)
    return Condition("reward", "passed" if total >= at_least else "failed", {**evidence, "return": total})


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
