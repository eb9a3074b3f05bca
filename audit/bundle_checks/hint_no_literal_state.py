"""A hint tells how, never what: it holds no value of the initial state. Runs worlds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

_LEAST = 3
_PLAIN = re.compile(r"[^\W\d_]+")


@answers("hint.no_literal_state")
def hint_no_literal_state(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no id, address, time, number or proper name of the initial state stands in the hint.

    Values shorter than three characters, single plain words and what the tool schemas tell anyway (names, choices) do not count.

    Source: audit rule AUD-06; SPADE (2608.19197), whose hints name tool roles and phases only.
    """
    hint = subject.draft.hint
    if hint is None:
        return [CheckResult("hint.no_literal_state", "skip", "the bundle has no hint")]
    told = set(_literals(list(subject.tools.values())))
    literals = {value for value in _literals(subject.start_view) if value not in told and _telling(value)}
    found = sorted(value for value in literals if re.search(rf"(?<![\w@.-]){re.escape(value)}(?![\w@-])", hint))
    measured = {"words": len(hint.split()), "literals": len(literals)}
    remedy = "describe the step without the value"
    return [
        judged(
            "hint.no_literal_state", [{"literal": value, "hint": hint} for value in found], why="the hint holds a value of the state",
            remedy=remedy, measured=measured,
        )
    ]  # fmt: skip


def _literals(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _literals(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _literals(item)
    elif isinstance(value, str):
        yield value
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield str(value)


def _telling(value: str) -> bool:
    """Whether a value stands for something particular: longer than two characters and more than a plain word or an identifier."""
    return len(value) >= _LEAST and not _PLAIN.fullmatch(value) and not re.fullmatch(r"[a-z]+(_[a-z]+)*", value)
