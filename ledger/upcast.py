"""Reading stored bodies: every version that ever existed stays readable, by upcast steps and never by edits. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from pydantic import ValidationError

from ledger.canonical import parse
from ledger.errors import UnknownEventKind
from ledger.events import EVENT_CLASSES, EventBody


class Step(NamedTuple):
    """Makes a body of the next version out of one of this version, the same in Python and in SQL.

    Attributes:
        python: from the parsed body to the parsed body.
        sql: the same as an expression over `{b}`, which is jsonb, for the read models; tests compare the two.
    """

    python: Callable[[dict[str, Any]], dict[str, Any]]
    sql: str


Steps = Mapping[tuple[str, int], Step]

CLASSES: dict[str, type[EventBody]] = {cls.__name__: cls for cls in EVENT_CLASSES}


def _tokens_by_commitment(body: dict[str, Any]) -> dict[str, Any]:
    """ModelCalled 1 to 2: the blob that held an array was named by what is now its commitment."""
    arrays = {name: body.get(name) for name in ("prompt_ids", "sampled_ids", "logprobs")}
    return body | {
        name: {"count": array["count"], "commitment": array["data"]["blob_id"]} for name, array in arrays.items() if array is not None
    }


_TOKENS_BY_COMMITMENT = "{b}" + "".join(
    f" || CASE WHEN jsonb_typeof({{b}}->'{name}') = 'object' THEN jsonb_build_object('{name}', jsonb_build_object("
    f"'count', {{b}}#>'{{{name},count}}', 'commitment', {{b}}#>'{{{name},data,blob_id}}')) ELSE '{{}}'::jsonb END"
    for name in ("prompt_ids", "sampled_ids", "logprobs")
)
STEPS: dict[tuple[str, int], Step] = {("ModelCalled", 1): Step(_tokens_by_commitment, _TOKENS_BY_COMMITMENT)}
"""(kind, version) to the step from this version to the next."""


def decode(kind: str, schema_version: int, body: bytes) -> EventBody:
    """The body as the class of this release.

    Raises:
        UnknownEventKind: a kind this release does not know, a version newer than its own, or bytes that do not fit the schema.
    """
    cls = CLASSES.get(kind)
    if cls is None:
        raise UnknownEventKind(f"event kind {kind!r} is not known to this release; it knows {', '.join(sorted(CLASSES))}")
    if schema_version > cls.schema_version:
        raise newer(kind, schema_version)
    value = parse(body)
    for version in range(schema_version, cls.schema_version):
        value = STEPS[kind, version].python(value)
    try:
        return cls.model_validate(value)
    except ValidationError as error:
        raise UnknownEventKind(f"{kind} version {schema_version} does not fit its schema: {error.errors()[0]}") from error


def newer(kind: str, schema_version: int) -> UnknownEventKind:
    """The error that says that an event has a version of a later release."""
    return UnknownEventKind(
        f"{kind} has schema version {schema_version}; this release reads up to {CLASSES[kind].schema_version}: upgrade it"
    )


def upcast_sql(body: str, kinds: Iterable[str], steps: Steps = STEPS) -> str:
    """An SQL expression for the body of a row with `kind` and `schema_version`, brought to the newest version.

    Args:
        body: expression for the stored body as jsonb.
        kinds: that the rows may have.
        steps: those of this release unless a test brings its own.
    """
    wanted = set(kinds)
    # A level brings all rows of one version to the next, so a body that is two behind passes through two.
    for version in sorted({version for kind, version in steps if kind in wanted}):
        cases = [
            f"WHEN kind = '{kind}' AND schema_version <= {version} THEN {step.sql.replace('{b}', f'({body})')}"
            for (kind, at), step in sorted(steps.items())
            if at == version and kind in wanted
        ]
        body = f"CASE {' '.join(cases)} ELSE {body} END"
    return body
