"""Short ways to say what an update check found. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from audit.results import CheckResult, judged
from audit.update_subject import UpdateSubject

MOST = 12
"""Evidence events that one result names."""


def skipped(check_id: str, reason: str) -> list[CheckResult]:
    """One skip."""
    return [CheckResult(check_id, "skip", reason)]


def said(
    check_id: str, faults: Sequence[Any], *, why: str, remedy: str, fault: str | None, events: Iterable[str | None] = (),
    **measured: Any,
) -> list[CheckResult]:  # fmt: skip
    """One pass, or one failure with its kind of fault and the first events that show it."""
    ids = list(dict.fromkeys(name for name in events if name is not None))
    return [
        judged(check_id, faults, why=why, remedy=remedy, measured=measured, evidence_event_ids=ids[:MOST], fault=fault if faults else None)
    ]


def evidence(subject: UpdateSubject, rollout_ids: Iterable[str]) -> list[str]:
    """The events that show the part of these rollouts: parts of the batch and of the update first, then their rewards and outcomes."""
    mine = list(dict.fromkeys(rollout_ids))
    chosen = set(mine)
    parts = [event_id for event_id, row in subject.batch_rows if row.rollout_id in chosen]
    parts += [event_id for name in mine if name in subject.excluded for event_id in (subject.excluded[name][1],)]
    found = list(dict.fromkeys(parts or [event_id for event_id, _ in subject.assembled]))[:3]
    found += [event_id for event_id, _ in subject.applied][:1]
    for name in mine[:4]:
        own = subject.own_reward(name)
        found += [] if own is None else [own[0]]
        found += subject.known[name].event_ids if name in subject.known else ()
    return list(dict.fromkeys(found))


def parts_of(subject: UpdateSubject) -> list[str]:
    """The events of the update and of its batch."""
    return [event_id for event_id, _ in (*subject.applied[:3], *subject.assembled[:3])]


def close(a: float, b: float, relative: float, floor: float = 1e-9) -> bool:
    """Whether two numbers agree; a number that is not finite agrees with none."""
    return abs(a - b) <= floor + relative * max(abs(a), abs(b))


def by_rollout(pairs: Iterable[tuple[str, float]]) -> Mapping[str, float]:
    """Sums by rollout id."""
    found: dict[str, float] = {}
    for name, value in pairs:
        found[name] = found.get(name, 0.0) + value
    return found
