"""A rollout check's answer from what it saw: each fault with the events that show it. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.results import CheckResult, judged

_EVENTS = 50


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong, as JSON, and the events that show it, in the order in which they happened."""

    seen: Mapping[str, Any]
    event_ids: tuple[str | None, ...]


def found(
    check_id: str, faults: Sequence[Fault], *, why: str, remedy: str, measured: Mapping[str, Any], kind: str | None
) -> CheckResult:  # fmt: skip
    """A pass without faults, else a failure that names the first fault and the events of all of them.

    Args:
        why: the rule, as it reads when it is broken.
        kind: kind of fault that a failure shows, from `audit.taxonomy`; None where it blames nobody.
    Raises:
        ValueError: a fault without an event that shows it.
    """
    ids = list(dict.fromkeys(event_id for fault in faults for event_id in fault.event_ids if event_id is not None))
    if faults and not ids:
        raise ValueError(f"{check_id} found {len(faults)} faults and names no event that shows one; needed: at least one")
    return judged(
        check_id, [fault.seen for fault in faults], why=why, remedy=remedy, measured=measured, evidence_event_ids=ids[:_EVENTS], fault=kind
    )  # fmt: skip


def skipped(check_id: str, reason: str) -> list[CheckResult]:
    """The one result of a check that has nothing to look at."""
    return [CheckResult(check_id, "skip", reason)]
