"""What the ledger's rollouts of policies say about a task: whether it can be won, lost, and learned from. Pure."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean, pvariance
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from ledger.outcome import JUDGED

_IDS = (
    "statistical.reward_reachability", "statistical.difficulty_separation", "statistical.variance_bound", "statistical.adversarial_floor",
    "statistical.headroom", "statistical.training_signal",
)  # fmt: skip


@answers(*_IDS)
def statistical(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether some rollout won, policies differ, equal attempts vary within a bound, probes never won, and there is room to learn.

    Only rollouts whose outcome is evidence about the policy count. Fewer than `rollouts_least` of them: nothing is known, a skip.

    Source: OpenEnv RFC 008, the statistical level.
    """
    known = [line for line in subject.rollouts if line.outcome in JUDGED and line.reward is not None]
    least = int(policy["rollouts_least"])
    if len(known) < least:
        reason = f"the ledger holds {len(known)} judged rollouts of this bundle, needed {least}"
        return [CheckResult(name, "skip", reason, {"rollouts": len(known)}) for name in _IDS]
    ordinary = [line for line in known if line.rollout_kind != "probe"]
    by_policy = defaultdict(list)
    by_group = defaultdict(list)
    for line in ordinary:
        by_policy[line.policy].append(float(line.reward or 0.0))
        by_group[line.group_id].append(float(line.reward or 0.0))
    means = {str(name): fmean(values) for name, values in sorted(by_policy.items(), key=str)}
    best, spread = max(means.values(), default=0.0), max(means.values(), default=0.0) - min(means.values(), default=0.0)
    variance = max((pvariance(values) for values in by_group.values()), default=0.0)
    probes = [
        {"rollout_id": line.rollout_id, "reward": line.reward} for line in known if line.rollout_kind == "probe" and (line.reward or 0) > 0
    ]
    measured = {"rollouts": len(known), "mean_by_policy": means}
    wins = sum(float(line.reward or 0.0) > 0 for line in ordinary)
    one = CheckResult("statistical.difficulty_separation", "skip", "only one policy has tried it", measured)
    separate = judged(
        "statistical.difficulty_separation", [] if spread > 0 else ["all policies earn the same"], why="policies are not told apart",
        remedy="look for what the weaker one must not be able to do", measured={**measured, "spread": spread},
    )  # fmt: skip
    rows: list[tuple[str, list[Any], str, dict[str, Any]]] = [
        (_IDS[0], [] if wins else ["no rollout earned anything"], "nobody has won", {"wins": wins}),
        (
            _IDS[2], [] if variance <= policy["variance_most"] else [f"variance {variance:.3f}, allowed {policy['variance_most']}"],
            "equal attempts differ too much", {"variance": variance},
        ),
        (_IDS[3], probes, "an adversarial probe was rewarded", {"probes": sum(line.rollout_kind == "probe" for line in known)}),
        (_IDS[4], [] if best < 1 else ["the best policy always wins"], "there is no headroom", {"best": best}),
        (_IDS[5], [] if variance > 0 else ["no group has any variance"], "there is no training signal", {"variance": variance}),
    ]  # fmt: skip
    made = [judged(name, faults, why=why, remedy="see the rollouts", measured={**measured, **extra}) for name, faults, why, extra in rows]
    return [*made, separate if len(means) > 1 else one]
