"""Recall: what came of something that is no longer trusted, and how much of the loss behind each later model version. Reads the database;
`recall` also writes one event.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ledger import lineage_graph, order
from ledger.errors import UnknownId
from ledger.events import SubjectRecalled
from ledger.ids import derived_id, node_id
from ledger.ledger import LedgerHandle
from ledger.lineage_graph import Graph, Mask, Numbers
from ledger.loss_shares import LossShare, loss_shares

NOUNS = ("verifier", "world", "harness", "model", "bundle", "verdict", "reward", "rollout")
NOT_CARRIED = ("judged_by", "replaces", "replaced_by")
"""Relations over which a fault is not passed on: a bundle that names a verifier is touched by it, the rollouts at that bundle are not."""


@dataclass(frozen=True)
class VersionShare:
    """A model version with the share of its loss weight that came from the scope; `parents` are those it was trained from."""

    model_version: str
    parents: tuple[str, ...]
    loss: LossShare


@dataclass(frozen=True)
class Impact:
    """What came of a subject.

    Attributes:
        subject: `<noun>-<id>`.
        position: up to which the log was read.
        closure: True: `counts` holds everything downstream; False: it stops at model versions and follows no relation of `NOT_CARRIED`.
        counts: noun to number of things, the subject left out.
        links: (noun of the parent, noun of the child) to number of edges among what is counted.
        versions: model versions with a share above 0, ancestors first.
        untouched: number of the project's model versions in whose line no weight came from the scope.
    """

    subject: str
    position: int
    closure: bool
    counts: Mapping[str, int]
    links: Mapping[tuple[str, str], int]
    versions: tuple[VersionShare, ...]
    untouched: int


def impact(ledger: LedgerHandle, subject: str, *, closure: bool = False) -> Impact:
    """What came of a subject, counted by noun, with the loss weight that it had in each later model version. Nothing is written.

    Args:
        subject: `<noun>-<id>`.
        closure: count everything downstream. Model versions chain, so of an early verifier that is nearly all of a ledger.
    Raises:
        UnknownId: nothing of that name is recorded, or its noun cannot be recalled.
    """
    noun = subject.partition("-")[0]
    if noun not in NOUNS:
        raise UnknownId(f"a {noun!r} cannot be recalled; allowed: {', '.join(NOUNS)}")
    graph = lineage_graph.load(ledger)
    start = graph.number(node_id(ledger.project, subject))
    if start is None:
        _check_recorded(ledger, subject)
        shares, _ = _shares(graph, np.empty(0, np.int32))
        return Impact(subject, graph.position, closure, {}, {}, (), len(_names(ledger, graph, set(shares))))
    near = _direct_edges(graph, start)
    scope = graph.reached(start, near)
    counted, edges = (graph.reached(start), None) if closure else (scope, near)
    shares, parents = _shares(graph, np.append(scope, start))
    touched = [version for version, loss in shares.items() if loss.scope > 0]
    names = _names(ledger, graph, set(shares))
    return Impact(
        subject=subject, position=graph.position, closure=closure, counts=graph.by_noun(counted),
        links=_links(graph, start, counted, edges, noun),
        versions=tuple(
            VersionShare(names[v], tuple(names.get(p, f"node:{graph.ids_N[p]}") for p in parents.get(v, ())), shares[v]) for v in touched
        ),
        untouched=len(names) - len(touched),
    )  # fmt: skip


def recall(ledger: LedgerHandle, found: Impact, reason: str) -> str:
    """Id of the recall of a subject, durably recorded with its reason, who did it, and what it touches.

    Raises:
        IdempotencyConflict: the subject is recalled already, with another reason or by somebody else.
    """
    recall_id = derived_id("recall", ledger.project, found.subject)
    known = ledger.read_stream(f"recall-{recall_id}")
    blob = ledger.pending(reason)
    position, counts = found.position, dict(found.counts)
    if known and isinstance(body := known[0].body, SubjectRecalled):
        # What it touched is a measurement of that time; asked again with the same reason, the recall that stands is returned.
        position, counts = body.position, body.counts
    body = SubjectRecalled(
        recall_id=recall_id, subject=found.subject, reason=blob.ref, recalled_by=ledger.actor_id, position=position, counts=counts
    )
    ledger.append([ledger.new(body, blob)])
    return recall_id


def recalled(ledger: LedgerHandle, subject: str) -> order.Recorded | None:
    """The event that recalled a subject; None while it stands."""
    events = ledger.read_stream(f"recall-{derived_id('recall', ledger.project, subject)}")
    return events[0] if events else None


def _check_recorded(ledger: LedgerHandle, subject: str) -> None:
    with ledger.connection() as conn:
        if conn.execute("SELECT FROM node WHERE node_id = %s", (node_id(ledger.project, subject),)).fetchone() is None:
            noun, _, ident = subject.partition("-")
            raise UnknownId(f"no {noun} {ident!r} in project {ledger.project!r}")


def _direct_edges(graph: Graph, start: int) -> Mask:
    """Edges that pass a fault on: none that leave a model version other than the subject itself."""
    ends: Mask = graph.is_noun("model").copy()
    ends[start] = False
    # The subject's own edges count whatever their relation; what they lead to is where it stops.
    stops = graph.has_label(*NOT_CARRIED) & (graph.parent_E == start)
    ends[graph.child_E[stops]] = True
    carried: Mask = ~ends[graph.parent_E] & (~graph.has_label(*NOT_CARRIED) | stops)
    return carried


def _shares(graph: Graph, scope: Numbers) -> tuple[dict[int, LossShare], dict[int, list[int]]]:
    """Loss share of each model version by its number, and the versions that each was trained from."""
    within = np.zeros(len(graph.ids_N), np.bool_)
    within[scope] = True
    loss = graph.has_label("weighs")[graph.weighted]
    places, weights, size = graph.weighted[loss], graph.weights[loss], len(graph.ids_N)
    update, source = graph.child_E[places], graph.parent_E[places]
    total = np.bincount(update, weights=weights, minlength=size)
    tainted = np.bincount(update, weights=weights * within[source], minlength=size)
    made, lines = graph.has_label("made_by"), graph.has_label("trained_from")
    own: dict[int, tuple[float, float]] = {}
    for version, by in dict.fromkeys(zip(graph.child_E[made].tolist(), graph.parent_E[made].tolist(), strict=True)):
        weight, part = own.get(version, (0.0, 0.0))
        own[version] = (weight + float(total[by]), part + float(tainted[by]))
    parents: dict[int, list[int]] = {}
    for version, parent in dict.fromkeys(zip(graph.child_E[lines].tolist(), graph.parent_E[lines].tolist(), strict=True)):
        parents.setdefault(version, []).append(parent)
    return loss_shares(own, parents), parents


def _links(graph: Graph, start: int, counted: Numbers, edges: Mask | None, noun: str) -> dict[tuple[str, str], int]:
    within = np.zeros(len(graph.ids_N), np.bool_)
    within[counted] = within[start] = True
    inside = within[graph.parent_E] & within[graph.child_E]
    inside = inside if edges is None else inside & edges
    nouns, noun_N = (*graph.nouns, noun), graph.noun_N.astype(np.int64)
    noun_N[start] = len(nouns) - 1
    width = len(nouns)
    pairs = np.bincount(noun_N[graph.parent_E[inside]] * width + noun_N[graph.child_E[inside]], minlength=width * width)
    return {(nouns[pair // width], nouns[pair % width]): int(pairs[pair]) for pair in np.flatnonzero(pairs).tolist()}


def _names(ledger: LedgerHandle, graph: Graph, versions: set[int]) -> dict[int, str]:
    """Model version of each node number of this project; one that is only named as a parent, of which nothing is recorded, has none."""
    numbers = sorted(versions)
    ids = graph.ids_N[numbers].tolist()
    with ledger.connection() as conn:
        rows = conn.execute("SELECT node_id, name FROM node WHERE project = %s AND node_id = ANY (%s)", (ledger.project, ids)).fetchall()
    known = {int(node): str(name).partition("-")[2] for node, name in rows}
    return {number: known[node] for number, node in zip(numbers, ids, strict=True) if node in known}
