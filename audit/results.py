"""What a check found, and how evidence is made short and storable. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ledger.canonical import MAX_INT
from ledger.events.task import CheckStatus

Function = TypeVar("Function", bound=Callable[..., Any])
_TEXT_CHARS = 300
_ITEMS = 12
_DEPTH = 8


@dataclass(frozen=True)
class CheckResult:
    """What a check found.

    Attributes:
        check_id: the name that the check has in the field, such as `runtime.seed_control`.
        status: pass, fail, skip (not run, `reason` says why) or error (it broke). Only pass is a pass.
        reason: in a few of our own words, with the value seen and the value needed.
        measured: JSON of what was measured.
        evidence: JSON that lets a person see it: calls, differences, texts.
        remedy: what to do about a failure.
        evidence_event_ids: events that show it.
        depends_on: for a skip, the id of the check without whose pass this one means nothing.
        fault: for a failure, the kind of fault that it shows, from `audit.taxonomy`; None where it blames nobody.
    """

    check_id: str
    status: CheckStatus
    reason: str = ""
    measured: Mapping[str, Any] = field(default_factory=dict)
    evidence: Any = None
    remedy: str = ""
    evidence_event_ids: tuple[str, ...] = ()
    depends_on: str | None = None
    fault: str | None = None

    def as_json(self) -> dict[str, Any]:
        """The result as a JSON object that has a canonical form."""
        made = {
            "check_id": self.check_id, "status": self.status, "reason": self.reason, "measured": shown(dict(self.measured)),
            "evidence": shown(self.evidence), "remedy": self.remedy, "evidence_event_ids": list(self.evidence_event_ids),
        }  # fmt: skip
        later = {"depends_on": self.depends_on, "fault": self.fault}
        return {**made, **{name: value for name, value in later.items() if value is not None}}


def result_of(made: Mapping[str, Any]) -> CheckResult:
    """The result that `as_json` wrote."""
    return CheckResult(**{**made, "evidence_event_ids": tuple(made["evidence_event_ids"])})


def answers(*check_ids: str, needs: tuple[str, ...] = (), explains: tuple[str, ...] = ()) -> Callable[[Function], Function]:
    """A decorator that names the ids that a check answers for and the checks that must have passed before it means anything.

    Args:
        explains: ids of other checks whose failure on the same subject is a consequence of a failure of this one.
    """

    def mark(check: Function) -> Function:
        check.__dict__.update(check_ids=check_ids, needs=needs, explains=explains)
        return check

    return mark


def judged(
    check_id: str, faults: Sequence[Any], *, why: str, remedy: str, measured: Mapping[str, Any], evidence_event_ids: Sequence[str] = (),
    fault: str | None = None,
) -> CheckResult:  # fmt: skip
    """A pass without faults, else a failure that says the first and shows them all.

    Args:
        faults: JSON of each fault.
        why: the rule, as it reads when it is broken.
        measured: what was measured; the number of faults is added.
        evidence_event_ids: events that show the faults.
        fault: kind of fault that a failure shows.
    """
    numbers = {**measured, "faults": len(faults)}
    if not faults:
        return CheckResult(check_id, "pass", measured=numbers)
    first = (
        faults[0] if isinstance(faults[0], str) else ", ".join(f"{key} {str(value)[:120]}" for key, value in list(faults[0].items())[:4])
    )
    return CheckResult(check_id, "fail", f"{why}: {first}", numbers, list(faults), remedy, tuple(evidence_event_ids), fault=fault)


def shown(value: Any, depth: int = 0) -> Any:
    """`value` with a canonical form and short enough to keep: long text and lists are cut and say so, numbers beyond JSON are text."""
    if isinstance(value, str):
        text = value.replace("\x00", "\\u0000").encode("utf-8", "backslashreplace").decode()
        return text if len(text) <= _TEXT_CHARS else f"{text[:_TEXT_CHARS]}… ({len(text)} characters)"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return value if abs(value) <= MAX_INT else str(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if depth >= _DEPTH:
        return f"{type(value).__name__} (nested deeper than {_DEPTH} levels)"
    if isinstance(value, Mapping):
        items = list(value.items())
        kept = {shown(str(key)): shown(item, depth + 1) for key, item in items[: 4 * _ITEMS]}
        return kept if len(items) <= 4 * _ITEMS else {**kept, "…": f"{len(items) - 4 * _ITEMS} more"}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        kept_items = [shown(item, depth + 1) for item in value[:_ITEMS]]
        return kept_items if len(value) <= _ITEMS else [*kept_items, f"… {len(value) - _ITEMS} more"]
    return shown(str(value))
