"""What verifiers and people said of the same rollouts, and how often each verifier was asked. Reads the read models."""

from dataclasses import dataclass

from ledger.errors import UnknownId
from ledger.evaluated import of_kind
from ledger.events import VerifierRegistered
from ledger.ledger import LedgerHandle

_PAIRS = """SELECT DISTINCT ON (m.rollout_id, coalesce(o.verifier_id, 'people')) m.rollout_id, r.bundle_id, m.passed, o.verifier_id,
       o.verifier_kind, o.passed
FROM verdict_view AS m
  JOIN verdict_view AS o ON o.project = m.project AND o.rollout_id = m.rollout_id AND o.verdict_id <> m.verdict_id
  JOIN rollout_view AS r ON r.project = m.project AND r.rollout_id = m.rollout_id
WHERE m.project = %s AND m.verifier_id = %s AND o.verifier_id IS DISTINCT FROM m.verifier_id
  AND m.passed IS NOT NULL AND o.passed IS NOT NULL
ORDER BY m.rollout_id, coalesce(o.verifier_id, 'people'), m.position DESC, o.position DESC"""
_GIVEN = """SELECT v.role, v.status, v.passed, count(*) FROM verdict_view AS v WHERE v.project = %s AND v.verifier_id = %s
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3"""


@dataclass(frozen=True)
class VerdictPair:
    """Two verdicts on one rollout, both decided.

    Attributes:
        passed: what the verifier that was asked about says.
        other_id: the other verifier; None for a person.
        other_kind: program, state_diff, judge or human.
        other_passed: what that one says.
    """

    rollout_id: str
    bundle_id: str
    passed: bool
    other_id: str | None
    other_kind: str
    other_passed: bool


@dataclass(frozen=True)
class GivenCount:
    """How many verdicts of a verifier have this role, status and answer."""

    role: str
    status: str
    passed: bool | None
    count: int


def verdict_pairs(ledger: LedgerHandle, verifier_id: str) -> list[VerdictPair]:
    """A verifier's newest verdict on each rollout beside the newest of each other verifier, and of people, where both are decided."""
    with ledger.connection() as conn:
        rows = conn.execute(_PAIRS, (ledger.project, verifier_id)).fetchall()
    return [VerdictPair(*row) for row in rows]


def verdicts_given(ledger: LedgerHandle, verifier_id: str) -> list[GivenCount]:
    """How often a verifier was asked, by role, status and answer."""
    with ledger.connection() as conn:
        rows = conn.execute(_GIVEN, (ledger.project, verifier_id)).fetchall()
    return [GivenCount(*row) for row in rows]


def registered_verifiers(ledger: LedgerHandle) -> dict[str, VerifierRegistered]:
    """Verifier id to its registration, in the order of registering."""
    bodies = [body for event in of_kind(ledger, "VerifierRegistered") if isinstance(body := event.body, VerifierRegistered)]
    return {body.verifier_id: body for body in bodies}


def verifier_named(ledger: LedgerHandle, ident: str) -> VerifierRegistered:
    """The registered version that an id, a beginning of one, or a name means: of a name the newest version.

    Raises:
        UnknownId: none, or several versions begin so.
    """
    known = registered_verifiers(ledger)
    named = [body for body in known.values() if body.name == ident]
    begun = [body for verifier_id, body in known.items() if verifier_id.startswith(ident)]
    if named:
        return named[-1]
    if len(begun) != 1:
        names = ", ".join(dict.fromkeys(body.name for body in known.values())) or "none"
        raise UnknownId(f"{len(begun)} verifiers are named {ident!r} or begin so in project {ledger.project!r}; there are {names}")
    return begun[0]
