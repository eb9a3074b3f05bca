"""Runs checks so that whatever breaks in one is a result and not the end of the run. Runs worlds."""

import re
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from audit.results import CheckResult
from ledger.methods import Bound

T = TypeVar("T")
Subject = TypeVar("Subject", contravariant=True)
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_MESSAGE_CHARS = 500


@dataclass(frozen=True)
class Broken:
    """What was raised: the error's class and message, without memory addresses, and the place in the code."""

    error: str
    place: str


class Check(Protocol[Subject]):
    """A check of any kind of subject; it carries `check_ids`, and `needs` where it depends on another check's pass."""

    def __call__(self, subject: Subject, policy: Mapping[str, Any], /) -> Sequence[CheckResult]:
        """The results, one for each id."""
        ...


def guarded(call: Callable[[], T]) -> T | Broken:
    """What `call` returns, or what broke. Worlds, verifiers and checks are foreign code: any error of theirs is a finding."""
    try:
        return call()
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        place = f"{frames[-1].filename.rpartition('/')[2]}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
        return Broken(_ADDRESS.sub("", f"{type(error).__name__}: {error}")[:_MESSAGE_CHARS], place)


def run_checks(checks: Sequence[Bound[Any]], subject: Any, thresholds: Mapping[str, Any]) -> dict[str, CheckResult]:
    """Check id to result, of all ids of the checks; a check runs after those that it needs, and is skipped when one of them did not pass.

    Args:
        checks: bound checks of one family.
        subject: what they look at.
        thresholds: the policy's, by name.
    """
    results: dict[str, CheckResult] = {}
    waiting = list(checks)
    while waiting:
        ids = {check_id for bound in waiting for check_id in check_ids(bound)}
        ready = [bound for bound in waiting if not ids & set(needs(bound))] or waiting
        for bound in ready:
            for result in _results(bound, subject, thresholds, results):
                results[result.check_id] = result
        done = {id(bound) for bound in ready}
        waiting = [bound for bound in waiting if id(bound) not in done]
    return results


def check_ids(bound: Bound[Any]) -> tuple[str, ...]:
    """The ids that a check answers for."""
    return ids_of(_function(bound))


def ids_of(check: Any) -> tuple[str, ...]:
    """The ids that a function answers for that is not bound yet."""
    ids: tuple[str, ...] = check.check_ids
    return ids


def needs(bound: Bound[Any]) -> tuple[str, ...]:
    """The ids that must have passed before a check means anything."""
    ids: tuple[str, ...] = getattr(_function(bound), "needs", ())
    return ids


def explains(bound: Bound[Any]) -> tuple[str, ...]:
    """The ids of checks whose failure on the same subject is a consequence of this one's."""
    ids: tuple[str, ...] = getattr(_function(bound), "explains", ())
    return ids


def _function(bound: Bound[Any]) -> Any:
    return getattr(bound.call, "func", bound.call)


def _results(
    bound: Bound[Any], subject: Any, thresholds: Mapping[str, Any], known: Mapping[str, CheckResult]
) -> Sequence[CheckResult]:  # fmt: skip
    ids = check_ids(bound)
    missing = [name for name in needs(bound) if name in known and known[name].status != "pass"]
    if missing:
        first = known[missing[0]]
        reason = f"depends on {first.check_id}, which is {first.status}: {first.reason}"
        return [CheckResult(name, "skip", reason, remedy=first.remedy, depends_on=first.check_id) for name in ids]
    found = guarded(lambda: bound.call(subject, thresholds))
    if isinstance(found, Broken):
        return [
            CheckResult(name, "error", f"the check broke: {found.error}", evidence={"place": found.place}, remedy="repair what broke")
            for name in ids
        ]
    given = {result.check_id: result for result in found}
    return [given.get(name, CheckResult(name, "error", "the check gave no result for this id", remedy="repair the check")) for name in ids]
