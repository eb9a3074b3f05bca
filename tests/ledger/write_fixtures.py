"""Writes what is missing under tests/ledger/fixtures: `python -m tests.ledger.write_fixtures`; what is there is never changed.

A version of an event gets two fixtures, `<Kind>.v<n>.json` with every field set and `<Kind>.v<n>.minimal.json` with only what must be
set, both the canonical bytes of a real body, and an entry in `schemas.json`: the digest of each field's schema.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ledger.canonical import canonical_bytes
from ledger.events import EventBody
from ledger.upcast import CLASSES

FIXTURES = Path(__file__).resolve().parent / "fixtures"
EVENTS, SCHEMAS = FIXTURES / "events", FIXTURES / "schemas.json"
PROSE = ("title", "description")


def example(cls: type[EventBody], *, full: bool) -> EventBody:
    """A body with every field set, or with only those that have no default."""
    schema = cls.model_json_schema()
    return cls.model_validate_json(json.dumps(_value(schema, schema.get("$defs", {}), full)))


def _value(schema: Mapping[str, Any], defs: Mapping[str, Any], full: bool) -> Any:
    if "$ref" in schema:
        return _value(defs[schema["$ref"].rpartition("/")[2]], defs, full)
    if "anyOf" in schema:
        options = [option for option in schema["anyOf"] if (option.get("type") == "null") is not full]
        return _value((options or schema["anyOf"])[0], defs, full)
    if "enum" in schema or "const" in schema:
        return schema.get("const", schema.get("enum", [None])[-1 if full else 0])
    match schema["type"]:
        case "object" if "properties" in schema:
            names = schema["properties"] if full else schema.get("required", [])
            return {name: _value(schema["properties"][name], defs, full) for name in names}
        case "object":
            # Other ids than those outside: what is named once may not be named again.
            held = json.dumps(_value(schema["additionalProperties"], defs, full)).replace("x-1", "x-2")
            return {"a": json.loads(held)} if full else {}
        case "array":
            return [_value(schema["items"], defs, full)] if full else []
        case "string":
            return _text(schema, full)
        case "integer":
            return schema.get("minimum", 0) + (3 if full else 0)
        case "number":
            return 0.25 if full else 0.0
        case "boolean":
            return full
    return None


def _text(schema: Mapping[str, Any], full: bool) -> str:
    if "64" in schema.get("pattern", ""):
        return ("ab" if full else "00") * 32
    return 'Ä ∑ 𝄞 "quoted"' if full and "pattern" not in schema else "x-1" if schema.get("minLength") or "pattern" in schema else ""


def field_digests(cls: type[EventBody]) -> dict[str, str]:
    """Field to the digest of its schema, whether it must be set included; prose is left out."""
    schema = cls.model_json_schema()
    required = schema.get("required", [])
    return {
        name: hashlib.sha256(canonical_bytes([_bare(field, schema.get("$defs", {})), name in required])).hexdigest()[:16]
        for name, field in schema.get("properties", {}).items()
    }


def _bare(schema: Any, defs: Mapping[str, Any]) -> Any:
    if isinstance(schema, list):
        return [_bare(item, defs) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _bare(defs[schema["$ref"].rpartition("/")[2]], defs)
    # A record inside a field may grow as a body may: what it got later is left out of the canonical form while it is not used.
    known = {name: field for name, field in schema.get("properties", {}).items() if not field.get("later")}
    properties = {name: _bare(field, defs) for name, field in known.items()}
    rest = {key: _bare(value, defs) for key, value in schema.items() if key not in (*PROSE, "properties")}
    return {**rest, "properties": properties} if properties else rest


def write_missing() -> list[str]:
    """Names of the fixtures that were written."""
    EVENTS.mkdir(parents=True, exist_ok=True)
    known: dict[str, dict[str, str]] = json.loads(SCHEMAS.read_text()) if SCHEMAS.exists() else {}
    written = []
    for kind, cls in sorted(CLASSES.items()):
        name = f"{kind}.v{cls.schema_version}"
        known[name] = field_digests(cls) | known.get(name, {})
        for path, full in ((EVENTS / f"{name}.json", True), (EVENTS / f"{name}.minimal.json", False)):
            if not path.exists():
                path.write_bytes(canonical_bytes(example(cls, full=full).model_dump(mode="json")))
                written.append(path.name)
    SCHEMAS.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return written


if __name__ == "__main__":
    print("\n".join(write_missing()) or "nothing is missing")
