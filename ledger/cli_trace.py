"""One screen of a trace: reward, verdicts, rollout, every model call with its tokens, every tool call. Writes to the terminal."""

from typing import Any

from rich.console import Console
from rich.text import Text

from ledger.decoders import Decoder
from ledger.lineage_rows import CallTrace, ToolTrace, Trace, VerdictTrace
from ledger.terminal import cell, plain, table

TOKENS_SHOWN = 32
SHORT = 160
_GOOD, _BAD, _DIM = "bold green", "bold red", "dim"


def print_trace(out: Console, trace: Trace, decode: Decoder | None) -> None:
    """Print the trace; `decode` puts text beside token ids where it knows the model version."""
    _print_head(out, trace)
    _print_verdicts(out, trace)
    for step in trace.steps:
        if isinstance(step, CallTrace):
            _print_call(out, step, decode)
        else:
            _print_tool(out, step)
    for check in trace.checks:
        said = f"{check.name} {'fits' if check.passed else 'DOES NOT FIT'}"
        _line(out, "check", (said, _GOOD if check.passed else _BAD), (check.detail, _DIM))


def trace_json(trace: Trace, decode: Decoder | None) -> dict[str, Any]:
    """The whole trace as JSON, with `sampled_text` in each call whose tokens can be decoded."""
    value = trace.as_json()
    for shown, call in zip(value["calls"], trace.calls, strict=True):
        shown["sampled_text"] = _decoded(call, decode)
    return value


def _print_head(out: Console, trace: Trace) -> None:
    reward, rollout = trace.reward, trace.rollout
    if reward is not None:
        value = "missing" if reward.value is None else f"{reward.value:g}"
        style = _GOOD if reward.value else _BAD if reward.value is None else "bold"
        _line(out, "reward", (value, style), (reward.reason, ""), (f"rule {reward.rule}", _DIM), (reward.reward_id, _DIM))
    for other in trace.rewards:
        if other != reward:
            value = "missing" if other.value is None else f"{other.value:g}"
            _line(out, "reward" if reward is None else "other", (value, "bold"), (other.reason, ""), (other.reward_id, _DIM))
    ended = "running" if rollout.ended_by is None else f"{rollout.ended_by} ({rollout.boundary}: {rollout.reason})"
    style = _GOOD if rollout.outcome == "succeeded" else "bold"
    _line(out, "rollout", (rollout.outcome, style), (ended, ""), (rollout.rollout_id, _DIM))
    if rollout.detail is not None:
        _line(out, "", (plain(rollout.detail, limit=SHORT), _BAD))
    place = f"slot {rollout.slot} attempt {rollout.attempt} {rollout.rollout_kind} seed {rollout.seed}"
    if trace.group is not None:
        place += f", {trace.group.policy}, experiment {trace.group.experiment_id[:12]} round {trace.group.round}"
    _line(out, "", (place, _DIM), (f"{len(trace.calls)} model calls, {len(trace.tools)} tool calls", _DIM))
    if trace.bundle is not None:
        _line(out, "task", (trace.bundle.name, "bold"), (f"{trace.bundle.world}, {trace.bundle.split}", ""), (trace.bundle.bundle_id, _DIM))
    for model in trace.models:
        _line(out, "model", (model.name, "bold"), ("scripted" if model.scripted else "weights", ""), (model.model_version, _DIM))


def _print_verdicts(out: Console, trace: Trace) -> None:
    rows = [row for verdict in trace.verdicts for row in _verdict_rows(verdict)]
    if rows:
        out.print(table(["verdict", "says", "by", "condition", "status", "evidence"], rows))
    for review in trace.reviews:
        says = f"{review.decision} by {review.reviewer_id}{' (counts)' if review.counts else ''}"
        _line(out, "review", (says, "bold"), (plain(review.reason, limit=SHORT), ""), (review.review_id, _DIM))


def _verdict_rows(verdict: VerdictTrace) -> list[list[Any]]:
    says = verdict.status if verdict.passed is None else "passed" if verdict.passed else "failed"
    source = f" {verdict.source_digest[:12]}" if verdict.source_digest else ""
    facts = [verdict.verifier_kind, verdict.role, *(["planted"] if verdict.planted else [])]
    by = f"{verdict.verifier or verdict.verifier_id[:12]} ({', '.join(facts)}){source}"
    head = [verdict.verdict_id, f"{says}{', counts' if verdict.counts else ''}", by]
    rows: list[list[Any]] = [
        [c.name, c.status if c.in_basis else f"{c.status}, not in the basis", cell(c.evidence, limit=SHORT)] for c in verdict.conditions
    ]
    if verdict.error is not None:
        rows.append(["", "error", cell(verdict.error, limit=SHORT)])
    if verdict.side_effect_count:
        rows.append([f"{verdict.side_effect_count} side effects", "", cell(verdict.side_effects, limit=SHORT)])
    rows = rows or [["", "", ""]]
    return [[*head, *rows[0]], *(["", "", "", *row] for row in rows[1:])]


def _print_call(out: Console, call: CallTrace, decode: Decoder | None) -> None:
    status = call.status or "no answer recorded"
    counts = f"prompt {_number(call.prompt_ids)} sampled {_number(call.sampled_ids)} tokens"
    facts = [counts, f"finish {call.finish_reason}", f"logprobs {call.logprobs_mode}"]
    if call.latency_s is not None:
        facts.append(f"{call.latency_s:.2f} s")
    _line(out, f"call {call.index}", (status, _GOOD if status == "completed" else _BAD), (f"{call.participant} ({call.role})", ""),
          (", ".join(facts), ""), (call.call_id, _DIM))  # fmt: skip
    if call.error is not None:
        _line(out, "", (f"{call.error_source}: {plain(call.error, limit=SHORT)}", _BAD))
    if call.sampled_ids is None:
        if call.status is not None:
            _line(out, "  ids", (f"none: {call.tokens_missing or 'not captured'}", _DIM))
    else:
        shown = " ".join(map(str, call.sampled_ids[:TOKENS_SHOWN]))
        more = len(call.sampled_ids) - TOKENS_SHOWN
        _line(out, "  ids", (shown, ""), (f"and {more} more" if more > 0 else "", _DIM))
    decoded = _decoded(call, decode)
    if decoded is not None:
        _line(out, "  decoded", (plain(decoded, limit=2 * SHORT), "cyan"))
    elif call.response is not None:
        _line(out, "  said", (plain(_said(call.response), limit=2 * SHORT), "cyan"))


def _print_tool(out: Console, tool: ToolTrace) -> None:
    arguments = tool.arguments_sampled if tool.arguments is None else tool.arguments
    style = _BAD if tool.error_class else "bold"
    _line(out, f"tool {tool.index}", (plain(tool.name), style), (plain(arguments, limit=SHORT), ""))
    if tool.error_class:
        _line(out, "  error", (tool.error_class, _BAD))
    state = "unchanged" if tool.state_before == tool.state_after else f"{tool.state_before[:12]} to {tool.state_after[:12]}"
    _line(out, "  result", (plain(tool.result, limit=SHORT), ""), (f"state {state}", _DIM))


def _decoded(call: CallTrace, decode: Decoder | None) -> str | None:
    if decode is None or call.sampled_ids is None or len(call.model_versions) != 1:
        return None
    return decode(call.model_versions[0], call.sampled_ids)


def _said(response: Any) -> Any:
    """What the model said in a chat completion: its text and its tool calls; other responses whole."""
    try:
        message = response["choices"][0]["message"]
    except (KeyError, IndexError, TypeError):
        return response
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    text = message.get("content") if isinstance(message, dict) else message
    return text if not calls else {"content": text, "tool_calls": calls}


def _number(values: tuple[int, ...] | None) -> str:
    return "-" if values is None else str(len(values))


def _line(out: Console, label: str, *parts: tuple[str, str]) -> None:
    text = Text(f"{label:<10}", style="" if label.startswith(" ") else "bold")
    for index, (value, style) in enumerate(part for part in parts if part[0]):
        text.append("  " if index else "")
        text.append(cell(value, style))
    out.print(text, soft_wrap=not out.is_terminal)
