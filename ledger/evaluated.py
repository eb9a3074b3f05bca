"""Slots of a run's groups with all that an evaluation needs of them, and the tool calls of rollouts. Reads the read models and events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger import blobs
from ledger.canonical import parse
from ledger.errors import CanonicalError, UnknownId
from ledger.events import ModelVersionPublished, RunConfigured, ToolCalled
from ledger.ids import node_id
from ledger.ledger import LedgerHandle
from ledger.order import Recorded

_PAGE = 500
# As in coverage: a slot is spoken for by its newest attempt that was not superseded; by a superseded one only when there is no other.
_SLOTS = """WITH g AS (
  SELECT g.*, b.name, b.world, b.split FROM group_view AS g JOIN bundle_view AS b ON b.project = g.project AND b.bundle_id = g.bundle_id
  WHERE g.project = %(project)s AND g.run_id = ANY (%(runs)s) AND g.bundle_id = ANY (%(bundles)s)),
spoken AS (
  SELECT DISTINCT ON (r.group_id, r.slot) r.* FROM rollout_view AS r JOIN g ON g.project = r.project AND g.group_id = r.group_id
  WHERE r.slot < g.size ORDER BY r.group_id, r.slot, r.superseded, r.attempt DESC, r.started_position DESC)
SELECT g.group_id, g.run_id, g.round, g.policy, g.rollout_kind, n.slot, g.bundle_id, g.name, g.world, g.split,
       s.rollout_id, s.model_version, s.outcome, s.ended_by, s.passed, w.value, coalesce(v.conditions, '[]'::jsonb), v.side_effect_count,
       s.model_calls, s.tool_calls, c.tokens_in, c.tokens_out
FROM g CROSS JOIN LATERAL generate_series(0, g.size - 1) AS n (slot)
  LEFT JOIN spoken AS s ON s.group_id = g.group_id AND s.slot = n.slot
  LEFT JOIN verdict_view AS v ON v.project = s.project AND v.verdict_id = s.verdict_id
  LEFT JOIN LATERAL (SELECT value FROM reward_view AS w WHERE w.project = s.project AND w.rollout_id = s.rollout_id
    ORDER BY position DESC LIMIT 1) AS w ON true
  LEFT JOIN LATERAL (
    SELECT CASE WHEN bool_and(prompt_tokens IS NOT NULL) THEN sum(prompt_tokens)::bigint END AS tokens_in,
           CASE WHEN bool_and(sampled_tokens IS NOT NULL) THEN sum(sampled_tokens)::bigint END AS tokens_out
    FROM call_view AS c WHERE c.project = s.project AND c.rollout_id = s.rollout_id AND c.status = 'completed') AS c ON true
ORDER BY g.round, g.policy, g.name, g.group_id, n.slot"""
_TIMES = """SELECT n.name, max(p.p->>'sampling'), max((e.b->>'seed')::bigint), max((e.b->>'wall_s')::float8)
FROM (SELECT x.stream_id, convert_from(x.body, 'UTF8')::jsonb AS b FROM event AS x
      WHERE x.kind IN ('RolloutStarted', 'RolloutEnded')
        AND x.stream_id = ANY (ARRAY(SELECT stream_id FROM stream_head WHERE node_id = ANY (%s)))) AS e
  JOIN stream_head AS h USING (stream_id) JOIN node AS n USING (node_id)
  LEFT JOIN LATERAL (
    SELECT p FROM jsonb_array_elements(e.b->'participants') WITH ORDINALITY AS listed (p, n)
    ORDER BY NOT (p->>'trainable')::boolean, p->>'role' <> 'agent', n LIMIT 1) AS p ON true
GROUP BY n.name"""

_ROLLOUTS = (
    "SELECT r.rollout_id FROM rollout_view AS r JOIN group_view AS g ON g.project = r.project AND g.group_id = r.group_id"
    " WHERE r.project = %(project)s AND g.run_id = %(run)s AND (%(round)s::bigint IS NULL OR g.round = %(round)s)"
    " ORDER BY g.round, r.group_id, r.slot, r.attempt"
)
_ROUNDS = (
    "SELECT DISTINCT g.round FROM group_view AS g JOIN rollout_view AS r ON r.project = g.project AND r.group_id = g.group_id"
    " WHERE g.project = %(project)s AND g.run_id = %(run)s ORDER BY 1"
)


@dataclass(frozen=True)
class RunLine:
    """A run as configured; `config` is the experiment's file as it was recorded."""

    run_id: str
    experiment_id: str
    name: str
    root_seed: int
    config: Mapping[str, Any]


@dataclass(frozen=True)
class SlotLine:
    """A slot of a group with the attempt that speaks for it; everything of the attempt is None or empty where there is none.

    Attributes:
        passed: what the verdict that counts says.
        reward: the newest; None is missing, not zero.
        conditions: name, status and in_basis of each condition of the verdict that counts.
        side_effects: number in that verdict; None without one.
        tokens_in, tokens_out: of all completed calls; None where one of them did not say.
        sampling: of the participant that `model_version` is of.
        wall_s: seconds from start to end; None where nobody measured it.
    """

    group_id: str
    run_id: str
    round: int
    policy: str
    rollout_kind: str
    slot: int
    bundle_id: str
    bundle: str
    world: str
    split: str
    rollout_id: str | None
    model_version: str | None
    outcome: str | None
    ended_by: str | None
    passed: bool | None
    reward: float | None
    conditions: tuple[Mapping[str, Any], ...]
    side_effects: int | None
    model_calls: int | None
    tool_calls: int | None
    tokens_in: int | None
    tokens_out: int | None
    sampling: Mapping[str, Any]
    seed: int | None
    wall_s: float | None


@dataclass(frozen=True)
class Called:
    """A tool call of a rollout; `arguments` None where they could not be parsed."""

    name: str
    arguments: Mapping[str, Any] | None
    error_class: str | None


def runs(ledger: LedgerHandle) -> list[RunLine]:
    """All runs of the project, oldest first."""
    bodies = [body for event in of_kind(ledger, "RunConfigured") if isinstance(body := event.body, RunConfigured)]
    configs = _json(ledger, [body.config.blob_id for body in bodies])
    return [RunLine(body.run_id, body.experiment_id, body.name, body.root_seed, configs[body.config.blob_id]) for body in bodies]


def published(ledger: LedgerHandle) -> dict[str, ModelVersionPublished]:
    """Model version to its publication, of the whole project, oldest first."""
    found: dict[str, ModelVersionPublished] = {}
    for event in of_kind(ledger, "ModelVersionPublished"):
        if isinstance(body := event.body, ModelVersionPublished):
            found.setdefault(body.model_version, body)
    return found


def attempted_bundles(ledger: LedgerHandle, run_ids: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Id of every bundle that a group of the runs attempts to its split and its proposer, in the order of sealing."""
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT bundle_id, split, proposer FROM bundle_view AS b WHERE project = %(project)s AND EXISTS (SELECT FROM group_view AS g"
            " WHERE g.project = b.project AND g.bundle_id = b.bundle_id AND g.run_id = ANY (%(runs)s)) ORDER BY position",
            {"project": ledger.project, "runs": list(run_ids)},
        ).fetchall()
    return {str(row[0]): (str(row[1]), str(row[2])) for row in rows}


def run_ids_of(ledger: LedgerHandle, subject: str) -> tuple[str, ...]:
    """Ids of the runs that a run's id, the beginning of one, or an experiment's id or name stands for.

    Raises:
        UnknownId: it stands for none, or for several runs with different experiments.
    """
    known = runs(ledger)
    exact = [run for run in known if subject in (run.run_id, run.experiment_id, run.name)]
    found = exact or [run for run in known if run.run_id.startswith(subject)]
    if not found:
        said = ", ".join(f"{run.run_id} ({run.name})" for run in known[-5:])
        raise UnknownId(f"{subject!r} is no run or experiment in project {ledger.project!r}; there are {said or 'none'}")
    if not exact and len(found) > 1:
        raise UnknownId(f"{subject!r} begins the id of {len(found)} runs: {', '.join(run.run_id for run in found[:5])}; give more of it")
    return tuple(run.run_id for run in found)


def rollouts_of_run(ledger: LedgerHandle, run_id: str, *, round: int | None = None) -> list[str]:
    """Ids of all rollouts of a run, or of one of its rounds, by round, group, slot and attempt, as the read models show them.

    Raises:
        UnknownId: there are none.
    """
    given = {"project": ledger.project, "run": run_id, "round": round}
    with ledger.connection() as conn:
        rows = conn.execute(_ROLLOUTS, given).fetchall()
        if not rows:
            rounds = ", ".join(str(row[0]) for row in conn.execute(_ROUNDS, given)) or "none"
            raise UnknownId(f"run {run_id} has no rollouts{'' if round is None else f' in round {round}'}; its rounds are {rounds}")
    return [str(row[0]) for row in rows]


def runs_of(ledger: LedgerHandle, model_versions: Sequence[str]) -> list[str]:
    """Ids of the runs in which one of the model versions took part in a rollout, sorted."""
    with ledger.connection() as conn:
        rows = conn.execute(
            "SELECT DISTINCT g.run_id FROM rollout_view AS r JOIN group_view AS g ON g.project = r.project AND g.group_id = r.group_id"
            " WHERE r.project = %s AND r.model_version = ANY (%s) ORDER BY 1",
            (ledger.project, list(model_versions)),
        ).fetchall()
    return [str(row[0]) for row in rows]


def slots(ledger: LedgerHandle, run_ids: Sequence[str], bundle_ids: Sequence[str]) -> list[SlotLine]:
    """Every slot of the runs' groups at these bundles, by round, policy and bundle, as the read models show them."""
    given = {"project": ledger.project, "runs": list(run_ids), "bundles": list(bundle_ids)}
    with ledger.connection() as conn:
        rows = conn.execute(_SLOTS, given).fetchall()
        timed: dict[str, tuple[Any, ...]] = {}
        ids = [row[10] for row in rows if row[10] is not None]
        for start in range(0, len(ids), _PAGE):
            nodes = [node_id(ledger.project, f"rollout-{rollout_id}") for rollout_id in ids[start : start + _PAGE]]
            timed |= {row[0].removeprefix("rollout-"): tuple(row[1:]) for row in conn.execute(_TIMES, (nodes,)).fetchall()}
    found = []
    for row in rows:
        sampling, seed, wall_s = timed.get(row[10], (None, None, None))
        said = {} if sampling is None else parse(sampling)
        found.append(SlotLine(*(*row[:16], tuple(row[16]), *row[17:], said, seed, wall_s)))
    return found


def tool_calls(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, tuple[Called, ...]]:
    """Rollout id to its tool calls in order; an empty tuple for one without any.

    Raises:
        BlobError: a name or an argument cannot be read, such as after its subject was shredded.
    """
    found: dict[str, list[Called]] = {rollout_id: [] for rollout_id in rollout_ids}
    for start in range(0, len(rollout_ids), _PAGE):
        events = ledger.read_streams([f"rollout-{rollout_id}" for rollout_id in rollout_ids[start : start + _PAGE]])
        bodies = [body for event in events if event.kind == "ToolCalled" and isinstance(body := event.body, ToolCalled)]
        ids = {ref.blob_id for body in bodies for ref in (body.name, body.arguments_parsed) if ref is not None}
        with ledger.connection() as conn:
            data = blobs.read_many(conn, sorted(ids))
        for body in sorted(bodies, key=lambda body: body.index):
            arguments = None if body.arguments_parsed is None else _object(data[body.arguments_parsed.blob_id])
            found[body.rollout_id].append(Called(data[body.name.blob_id].decode("utf-8", "replace"), arguments, body.error_class))
    return {rollout_id: tuple(calls) for rollout_id, calls in found.items()}


def provenances(ledger: LedgerHandle, bundle_ids: Sequence[str]) -> dict[str, Mapping[str, Any]]:
    """Bundle id to its provenance.

    Raises:
        BlobError: one cannot be read.
    """
    refs: dict[str, str] = {}
    for event in ledger.read_streams([f"bundle-{bundle_id}" for bundle_id in bundle_ids]):
        if event.kind == "BundleSealed":
            body: Any = event.body
            refs.setdefault(body.bundle_id, body.provenance.blob_id)
    data = _json(ledger, list(refs.values()))
    return {bundle_id: data[blob_id] for bundle_id, blob_id in refs.items()}


def of_kind(ledger: LedgerHandle, kind: str) -> list[Recorded]:
    """All events of one kind of the project by position, as of everything committed before the call."""
    ledger.barrier()
    found: list[Recorded] = []
    since = 0
    while page := ledger.read(since, kinds=(kind,), limit=_PAGE):
        found += page
        since = page[-1].position or since
    return found


def _json(ledger: LedgerHandle, blob_ids: Sequence[str]) -> dict[str, Any]:
    with ledger.connection() as conn:
        return {blob_id: parse(data) for blob_id, data in blobs.read_many(conn, sorted(set(blob_ids))).items()}


def _object(data: bytes) -> Mapping[str, Any] | None:
    try:
        value = parse(data)
    except CanonicalError:
        return None
    return value if isinstance(value, Mapping) else None
