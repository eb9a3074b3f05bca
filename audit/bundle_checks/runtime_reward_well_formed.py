"""Rewards are finite numbers in [0, 1] or missing, and a verifier that broke gives none. Runs worlds."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from training.verifiers import Verdict

_STATUSES = ("passed", "failed", "error")


@answers("runtime.reward_well_formed")
def runtime_reward_well_formed(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the reward of every tried path is a finite JSON number in [0, 1] and no truth value, and that of a broken verifier is null.

    Source: OpenEnv RFC 008, runtime.reward_well_formed; a verifier's error never becomes a number (EnvScaler and AWM turn it into one).
    """
    paths = [*([] if subject.reference is None else [subject.reference]), subject.no_op, *(attempt for attempt, _ in subject.wrong)]
    faults: list[Any] = []
    values = {}
    for attempt in paths:
        odd = [item.name for item in attempt.verdict.conditions if item.status not in _STATUSES]
        if odd:
            faults.append({"path": attempt.name, "condition": odd[0], "allowed": _STATUSES})
            continue
        value = values[attempt.name] = subject.rewarded(attempt.verdict)
        if attempt.verdict.passed is None:
            if value is not None:
                faults.append({"path": attempt.name, "reward": value, "allowed": "null, because the verifier did not decide"})
        elif isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value <= 1:
            faults.append({"path": attempt.name, "reward": repr(value), "allowed": "a finite number in [0, 1]"})
    broken = subject.rewarded(Verdict((), error="broken on purpose"))
    if broken is not None:
        faults.append({"path": "a verifier that broke", "reward": repr(broken), "allowed": "null"})
    remedy = "derive rewards from decided verdicts alone"
    return [judged("runtime.reward_well_formed", faults, why="a reward has no allowed form", remedy=remedy, measured={"rewards": values})]
