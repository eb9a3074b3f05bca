"""A credential in what the policy wrote or read; the quote never holds it."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.scanners import CheckResult, RolloutSubject, answers
from audit.scanners._transcript import actions, quote, results, scanned, spoken
from ledger.secrets import SCANNER


@answers("leak.secret")
def secrets_shown(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a text of the rollout holds what looks like a credential, by the patterns that guard what is stored.

    Source: the patterns of `ledger/secrets.py`.
    """
    quotes = []
    for text in (*actions(subject), *spoken(subject), *results(subject)):
        data = text.text.encode("utf-8", "surrogatepass")
        for hit in SCANNER.scan(data):
            start, end = (len(data[:offset].decode("utf-8", "replace")) for offset in (hit.start, hit.end))
            quotes.append(quote(text, start, end, hit.pattern, words=f"({hit.pattern}, {end - start} characters, not shown)"))
    return [scanned("leak.secret", subject, quotes, why="a credential is in the transcript", fault=None)]
