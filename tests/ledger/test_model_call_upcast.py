"""A ModelCalled of version 1 is read as one of today: the blob that held an array is its commitment."""

import json
from pathlib import Path

from ledger.canonical import parse
from ledger.events import ModelCalled
from ledger.upcast import decode

FIRST = Path(__file__).parent / "fixtures" / "events" / "ModelCalled.v1.json"


def test_an_array_in_a_blob_becomes_its_commitment() -> None:
    raw = FIRST.read_bytes()
    body = decode("ModelCalled", 1, raw)
    assert isinstance(body, ModelCalled)
    assert body.schema_version == 2
    for name, count in (("prompt_ids", 3), ("sampled_ids", 3), ("logprobs", 3)):
        assert (getattr(body, name).count, getattr(body, name).commitment) == (count, parse(raw)[name]["data"]["blob_id"])


def test_a_call_without_arrays_stays_without() -> None:
    raw = FIRST.read_bytes()
    bare = {**parse(raw), "prompt_ids": None, "sampled_ids": None, "logprobs": None}
    body = decode("ModelCalled", 1, json.dumps(bare).encode())
    assert isinstance(body, ModelCalled)
    assert (body.prompt_ids, body.sampled_ids, body.logprobs) == (None, None, None)
