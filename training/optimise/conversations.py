"""What was said in recorded rollouts, as supervised rows of a policy's own tokens. Reads the database."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ledger.blobs import read_many
from ledger.canonical import parse
from ledger.errors import TraceError
from ledger.events import ModelCallDispatched, ModelCalled
from ledger.ledger import LedgerHandle
from training.rows import Row
from training.traces import Template, Trace, compact_messages, trace_row

_BATCH = 200
_KINDS = ("ModelCallDispatched", "ModelCalled")


@dataclass(frozen=True, eq=False)
class TextRows:
    """Rows by rollout, and the rollouts that have none by reason."""

    rows: dict[str, Row] = field(default_factory=dict)
    left_out: dict[str, list[str]] = field(default_factory=dict)


def conversations(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, Trace | str]:
    """Rollout id to what was said, or why that is not known.

    The conversation is that of the agent's last answered call, with its answer.
    """
    found: dict[str, Trace | str] = {}
    for at in range(0, len(rollout_ids), _BATCH):
        found |= _traces(ledger, rollout_ids[at : at + _BATCH])
    return found


def text_rows(said: Mapping[str, Trace | str], template: Template) -> TextRows:
    """Each conversation as one row, tokenised anew and marked as text that nobody sampled as tokens."""
    found = TextRows()
    for rollout_id, trace in said.items():
        try:
            if isinstance(trace, str):
                raise TraceError(trace)
            found.rows[rollout_id] = trace_row(trace, template)
        except TraceError as error:
            found.left_out.setdefault(_reason(str(error), rollout_id), []).append(rollout_id)
    return found


def texts(said: Mapping[str, Trace | str]) -> list[str]:
    """The contents of all messages of the conversations, in order."""
    return [str(message["content"]) for trace in said.values() if not isinstance(trace, str) for message in trace.messages]


def _traces(ledger: LedgerHandle, rollout_ids: Sequence[str]) -> dict[str, Trace | str]:
    last: dict[str, tuple[ModelCallDispatched, ModelCalled]] = {}
    asked: dict[str, ModelCallDispatched] = {}
    for event in ledger.read_streams([f"rollout-{rollout_id}" for rollout_id in rollout_ids], kinds=_KINDS):
        body = event.body
        if isinstance(body, ModelCallDispatched) and body.role == "agent":
            asked[body.call_id] = body
        elif isinstance(body, ModelCalled) and body.status == "completed" and body.call_id in asked and body.rollout_id is not None:
            before = last.get(body.rollout_id)
            if before is None or before[1].index < body.index:
                last[body.rollout_id] = (asked[body.call_id], body)
    wanted = [ref.blob_id for sent, answered in last.values() for ref in (sent.request, answered.response) if ref is not None]
    with ledger.connection() as conn:
        blobs = read_many(conn, wanted)
    return {rollout_id: _trace(rollout_id, last.get(rollout_id), blobs) for rollout_id in rollout_ids}


def _trace(rollout_id: str, call: tuple[ModelCallDispatched, ModelCalled] | None, blobs: Mapping[str, bytes]) -> Trace | str:
    if call is None or call[1].response is None:
        return "no answered call"
    sent, answered = call
    request: Any = parse(blobs[sent.request.blob_id])
    response: Any = parse(blobs[call[1].response.blob_id])
    message = response["choices"][0]["message"]
    try:
        messages = compact_messages([*request["messages"], message], request.get("tools") or [])
    except TraceError as error:
        return str(error)
    return Trace(rollout_id, answered.participant, messages)


def _reason(text: str, rollout_id: str) -> str:
    return text.replace(f"rollout {rollout_id}: ", "")[:200]
