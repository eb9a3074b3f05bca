"""Were all rollouts of a group sampled by versions that lie close together?"""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.update_checks import CheckResult, UpdateSubject, answers
from audit.update_checks._lags import lags_of
from audit.update_checks._said import evidence, said, skipped


@answers("version_spread_in_group")
def version_spread_in_group(subject: UpdateSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Largest less smallest lag among the voters of a group, in updates.

    Source: survey AUD-16.
    """
    if not subject.judged or subject.view is None:
        return skipped(
            "version_spread_in_group", "no reward shapes this update" if not subject.judged else subject.unread or "no captured tokens"
        )
    groups: dict[str, dict[str, float]] = {}
    for name, lag in lags_of(subject).items():
        if name in subject.known and name in subject.row_of and subject.row_of[name][1].votes:
            groups.setdefault(subject.known[name].group_id, {})[name] = lag
    if not groups:
        return skipped("version_spread_in_group", "no voter names the version that sampled it")
    spread = {group: 0.0 if len(set(mine.values())) == 1 else max(mine.values()) - min(mine.values()) for group, mine in groups.items()}
    wide = {group: value for group, value in spread.items() if value > policy["version_spread_most"]}
    return said(
        "version_spread_in_group",
        [{"group": group, "updates": str(value)} for group, value in wide.items()],
        why="a group was sampled by versions that lie apart",
        remedy="sample a group by one version, or record it and compare within versions",
        fault="stale_weights",
        events=evidence(subject, [name for group in wide for name in groups[group]]),
        groups=len(groups),
        largest=max(spread.values()),
    )
