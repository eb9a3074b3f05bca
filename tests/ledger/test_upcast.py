"""Upcasting: every version of every event that ever was is kept as a fixture and stays readable, in Python and in SQL."""

import json
from typing import Any, ClassVar

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg.types.json import Jsonb

from ledger.canonical import canonical_bytes, parse
from ledger.errors import UnknownEventKind
from ledger.events import EventBody
from ledger.ledger import LedgerHandle
from ledger.projections.read_model import events_of
from ledger.upcast import CLASSES, STEPS, Step, decode, upcast_sql
from tests.ledger.conftest import History
from tests.ledger.write_fixtures import EVENTS, SCHEMAS, example, field_digests

WRITE = "run `python -m tests.ledger.write_fixtures`, which writes what is missing, and commit it"
VERSIONS = [(kind, version) for kind, cls in sorted(CLASSES.items()) for version in range(1, cls.schema_version + 1)]
FILES = sorted(EVENTS.glob("*.json"))


def version_of(name: str) -> tuple[str, int]:
    kind, version = name.split(".")[:2]
    return kind, int(version[1:])


@pytest.mark.parametrize(("kind", "version"), VERSIONS)
def test_every_version_has_its_two_fixtures(kind: str, version: int) -> None:
    wanted = {f"{kind}.v{version}.json", f"{kind}.v{version}.minimal.json"}
    missing = sorted(wanted - {path.name for path in FILES})
    how = WRITE if version == CLASSES[kind].schema_version else "they come with the release that wrote this version: restore them from git"
    assert missing == [], f"no fixtures {missing}; {how}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_fixture_decodes_to_the_class_of_today(path: Any) -> None:
    kind, version = version_of(path.name)
    data = path.read_bytes()
    body = decode(kind, version, data)
    assert type(body) is CLASSES[kind]
    assert canonical_bytes(parse(data)) == data
    if version == body.schema_version:
        again, kept = body.model_dump(mode="json"), parse(data)
        assert canonical_bytes({name: again[name] for name in kept}) == data
        fields = type(body).model_fields
        assert {name: again[name] for name in again.keys() - kept.keys()} == {
            name: fields[name].get_default(call_default_factory=True) for name in again.keys() - kept.keys()
        }


@pytest.mark.parametrize("path", [path for path in FILES if "minimal" not in path.name], ids=lambda path: path.name)
def test_the_full_fixture_sets_every_field_that_its_version_had(path: Any) -> None:
    body = parse(path.read_bytes())
    assert [name for name, value in body.items() if value is None or value == [] or value == {}] == []
    assert set(body) <= set(json.loads(SCHEMAS.read_text())[path.name.removesuffix(".json")])


def faults(kind: str, version: int, cls: type[EventBody], recorded: dict[str, dict[str, str]]) -> list[str]:
    """What is wrong with a class against the record of its version, and what to do."""
    known = recorded.get(f"{kind}.v{version}")
    if known is None:
        return [f"{kind} version {version} is not recorded: {WRITE}"]
    now, must = field_digests(cls), cls.model_json_schema().get("required", [])
    changed = sorted(name for name in known if now.get(name) != known[name])
    forced = sorted(name for name in now.keys() - known.keys() if name in must)
    told = []
    if changed or forced:
        told.append(
            f"{kind} version {version}: {', '.join(changed + forced)} changed, went or must be set, so old bodies no longer fit. Give a new"
            f" field a default; for anything else set schema_version = {version + 1}, add STEPS[{kind!r}, {version}] = Step(python, sql) in"
            f" ledger/upcast.py, leave the fixtures of version {version} as they are, and {WRITE}"
        )
    elif now.keys() - known.keys():
        told.append(
            f"{kind} version {version}: new fields {sorted(now.keys() - known.keys())} have defaults, but are not recorded: {WRITE}"
        )
    return told


@pytest.mark.parametrize("kind", sorted(CLASSES))
def test_a_schema_does_not_change_without_a_new_version(kind: str) -> None:
    cls = CLASSES[kind]
    assert faults(kind, cls.schema_version, cls, json.loads(SCHEMAS.read_text())) == []


class Weighed(EventBody):
    """An event of the tests."""

    name: str
    grams: int


class WeighedWithDefault(Weighed):
    """The same with one more field that has a default."""

    note: str = ""


class WeighedWithMore(Weighed):
    """The same with one more field that must be set."""

    note: str


class WeighedOtherwise(EventBody):
    """The same with another type."""

    name: str
    grams: float


def test_a_changed_schema_is_noticed_and_a_default_or_a_new_version_allowed() -> None:
    recorded = {"Weighed.v1": field_digests(Weighed)}
    assert faults("Weighed", 1, Weighed, recorded) == []
    assert "note changed, went or must be set" in faults("Weighed", 1, WeighedWithMore, recorded)[0]
    assert "grams changed" in faults("Weighed", 1, WeighedOtherwise, recorded)[0]
    assert "STEPS['Weighed', 1] = Step(python, sql)" in faults("Weighed", 1, WeighedOtherwise, recorded)[0]
    assert "['note'] have defaults, but are not recorded" in faults("Weighed", 1, WeighedWithDefault, recorded)[0]
    assert "is not recorded" in faults("Weighed", 2, WeighedOtherwise, recorded)[0]


def test_every_chain_of_steps_is_complete_and_leads_to_today() -> None:
    wanted = {(kind, version) for kind, version in VERSIONS if version < CLASSES[kind].schema_version}
    assert set(STEPS) == wanted, "each older version needs STEPS[kind, version] = Step(python, sql) in ledger/upcast.py, and no others"


def test_a_version_or_a_kind_of_a_later_release_is_refused() -> None:
    with pytest.raises(UnknownEventKind, match="RewardDerived has schema version 9; this release reads up to 1: upgrade it"):
        decode("RewardDerived", 9, b"{}")
    with pytest.raises(UnknownEventKind, match="'Fished' is not known to this release"):
        decode("Fished", 1, b"{}")
    with pytest.raises(UnknownEventKind, match="RewardDerived version 1 does not fit its schema"):
        decode("RewardDerived", 1, b"{}")


# Two steps of the tests: a field is renamed and moved inwards, then another gets a unit.
def _moved(body: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in body.items() if name != "reason"}, "why": {"text": body["reason"]}}


def _scaled(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "value": None if body["value"] is None else body["value"] * 2}


TWO: dict[tuple[str, int], Step] = {
    ("RewardDerived", 1): Step(_moved, "({b} - 'reason') || jsonb_build_object('why', jsonb_build_object('text', {b}->'reason'))"),
    ("RewardDerived", 2): Step(_scaled, "{b} || jsonb_build_object('value', CASE WHEN {b}->>'value' IS NULL THEN NULL"
                                        " ELSE ({b}->>'value')::float8 * 2 END)"),
}  # fmt: skip


def in_sql(conn: psycopg.Connection[Any], kind: str, version: int, body: Any, steps: dict[tuple[str, int], Step]) -> Any:
    query = f"SELECT {upcast_sql('body', [kind], steps)} FROM (SELECT %s AS kind, %s AS schema_version, %s AS body) AS e"
    row = conn.execute(query, (kind, version, Jsonb(body))).fetchone()
    assert row is not None
    return row[0]


def in_python(kind: str, version: int, body: Any, steps: dict[tuple[str, int], Step]) -> Any:
    while (kind, version) in steps:
        body, version = steps[kind, version].python(body), version + 1
    return body


def variants(value: Any) -> st.SearchStrategy[Any]:
    """Values of the same form."""
    if isinstance(value, bool):
        return st.booleans()
    if isinstance(value, int):
        return st.integers(0, 2**53)
    if isinstance(value, float):
        return st.floats(-1e6, 1e6).map(lambda x: x + 0.0)
    if isinstance(value, str):
        return st.just(value) | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8)
    if isinstance(value, list):
        return st.lists(variants(value[0]), max_size=3) if value else st.just([])
    if isinstance(value, dict):
        return st.fixed_dictionaries({name: variants(inner) for name, inner in value.items()})
    return st.just(value)


def old_bodies(kind: str, version: int, where: dict[str, Any]) -> st.SearchStrategy[Any]:
    """Bodies of a version: each field as in the full fixture, as in the minimal one, or a variant of either."""
    full, least = where["full"], where["minimal"]
    return st.fixed_dictionaries(
        {name: variants(full[name]) | st.just(full[name]) | variants(least.get(name, full[name])) for name in full}
    )


def fixtures(kind: str, version: int) -> dict[str, Any]:
    paths = {"full": EVENTS / f"{kind}.v{version}.json", "minimal": EVENTS / f"{kind}.v{version}.minimal.json"}
    return {name: json.loads(path.read_bytes()) for name, path in paths.items()}


CHECKED = [*((step, STEPS) for step in sorted(STEPS)), (("RewardDerived", 1), TWO)]


@pytest.mark.parametrize(("step", "steps"), CHECKED, ids=lambda value: "" if isinstance(value, dict) else "-".join(map(str, value)))
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_step_in_sql_is_the_step_in_python(ledger: LedgerHandle, step: tuple[str, int], steps: dict[Any, Step], data: Any) -> None:
    known = fixtures(*step)
    body = data.draw(old_bodies(*step, known) | st.sampled_from([known["full"], known["minimal"]]))
    with ledger.connection() as conn:
        assert in_sql(conn, *step, body, steps) == in_python(*step, body, steps)


def test_read_models_read_old_bodies_through_the_steps(ledger: LedgerHandle) -> None:
    history = History(ledger)
    history.reward("r", "one", None, 0.5)
    history.reward("r", "two", None, 0.5)
    position = ledger.barrier()
    with ledger.connection() as conn:
        conn.execute("SET LOCAL session_replication_role = replica")
        conn.execute("UPDATE event SET schema_version = 2 WHERE id = (SELECT id FROM event_order WHERE position = %s)", (position,))
        query = (
            f"WITH {events_of(['RewardDerived', 'RolloutEnded'], TWO)} SELECT b->'value', b ? 'reason', b->'why' FROM e ORDER BY position"
        )
        rows = conn.execute(query, {"low": 0, "high": position}).fetchall()
    assert rows == [(1.0, False, {"text": "all conditions passed"}), (1.0, True, None)]


class Ticked(EventBody):
    """An event of the tests, of its third version."""

    schema_version: ClassVar[int] = 3
    at: int
    note: str | None = None


def test_examples_are_full_or_minimal() -> None:
    assert example(Ticked, full=True).model_dump() == {"at": 3, "note": 'Ä ∑ 𝄞 "quoted"'}
    assert example(Ticked, full=False).model_dump() == {"at": 0, "note": None}
