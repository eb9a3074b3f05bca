"""The harness declares finite limits, and a time limit below the policy's ceiling. Pure."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

DECLARED = ("calls", "max_tokens", "wall_s")
_IDS = ("static.resource_declaration", "static.timeout_ceiling")


@answers(*_IDS)
def static_limits(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether calls, tokens and seconds are limited by positive finite numbers, and seconds by no more than `wall_s_ceiling`.

    Source: OpenEnv RFC 008, static.resource_declaration and static.timeout_ceiling.
    """
    limits = dict(subject.limits)
    if not limits:
        reason = "the harness at hand declares no limits by name"
        return [CheckResult(name, "fail", reason, remedy="seal the bundle with a harness that declares them") for name in _IDS]
    bad = [
        f"{name} is {limits.get(name)!r}; allowed: a positive finite number"
        for name in DECLARED
        if not isinstance(limits.get(name), int | float) or not 0 < limits[name] < math.inf
    ]
    wall = limits.get("wall_s", math.inf)
    late = [] if wall <= policy["wall_s_ceiling"] else [f"wall_s is {wall}; allowed: up to {policy['wall_s_ceiling']}"]
    remedy = "declare the limit in the harness"
    return [
        judged("static.resource_declaration", bad, why="a limit is missing", remedy=remedy, measured={"limits": limits}),
        judged("static.timeout_ceiling", late, why="the time limit is above the ceiling", remedy=remedy, measured={"wall_s": wall}),
    ]
