"""Checks of answers, tool calls, times and states, each with its golden case and its legal neighbour."""

from dataclasses import replace
from typing import Any

from ledger.events import HistoryRewritten, ModelCallDispatched
from tests.audit.rollout_subjects import HEALTHY, Call, Made, Tool, checked, failed, rollout, status

EDIT = '<tool_call>\n{"name": "edit", "arguments": {"code": "    if x:\\n"}}\n</tool_call>'
EDIT_XML = "<tool_call>\n<function=edit>\n<parameter=code>\n    if x:\n\n</parameter>\n</function>\n</tool_call>"
USER = {"role": "user", "content": "Find the tickets."}
DONE = {"role": "assistant", "content": "Done."}


def edited(text: str, parsed: str) -> Any:
    call = Call(content="", tool_calls=[("edit", "{}")], text=text, finish="tool_calls")
    arguments = {"code": parsed}
    return rollout([call, Call(content="Done.")], [Tool("edit", '{"code": "' + parsed.replace("\n", "\\n") + '"}', arguments)])


def test_c7_arguments_whose_blanks_a_parser_stripped_fail_args_roundtrip() -> None:
    for text in (EDIT, EDIT_XML):
        failed(edited(text, "if x:"), "args_roundtrip", "arguments_changed")
        assert status(edited(text, "    if x:\n"), "args_roundtrip") == "pass"


def test_another_spelling_of_the_same_arguments_is_no_change() -> None:
    spaced = rollout(tools=[Tool(sampled='{ "b":1.0,  "a": [2] }', parsed={"a": [2], "b": 1})])
    assert status(spaced, "args_roundtrip") == "pass"
    twice = rollout(tools=[Tool(sampled='"{\\"a\\": 1}"', parsed={"a": 1})])
    assert status(twice, "args_roundtrip") == "pass"
    line = rollout([Call(content="get_ticket 10")], [Tool(sampled="10", parsed={"ticket": "10"})], tool_format="compact")
    assert status(line, "args_roundtrip") == "pass"
    failed(rollout(tools=[Tool(sampled="ann T10", parsed={"ticket": "T11"})]), "args_roundtrip", "arguments_changed")
    assert status(rollout(tools=[Tool(parsed=None, error="malformed_arguments")]), "args_roundtrip") == "skip"


def test_a_call_in_markup_that_nobody_read_fails_markup_without_call() -> None:
    lost = Call(content=EDIT)
    failed(rollout([lost], ()), "markup_without_call", "call_dropped_by_parser")
    failed(rollout([Call(content="", text=EDIT)], ()), "markup_without_call", "call_dropped_by_parser")
    assert status(rollout([replace(lost, tool_calls=[("edit", "{}")])], [Tool("edit")]), "markup_without_call") == "pass"
    broken = checked(rollout([Call(content='<tool_call>{"name": "edit", "argum')], ()), "markup_without_call")
    assert broken.status == "pass" and broken.measured["broken_markup"] == 1
    assert status(rollout([replace(lost, finish="length")], ()), "markup_without_call") == "skip"
    thought = Call(content=f"<think>{EDIT}</think>No edit is needed.")
    assert status(rollout([thought], ()), "markup_without_call") == "pass"


def test_an_answer_with_more_calls_than_were_made_fails_call_without_act() -> None:
    two = Call(tool_calls=[("list_tickets", "{}"), ("get_owner", "{}")], finish="tool_calls")
    failed(rollout([two, HEALTHY[1]], [Tool()]), "call_without_act", "call_dropped_by_parser")
    assert status(rollout([two, HEALTHY[1]], [Tool(), Tool("get_owner")]), "call_without_act") == "pass"
    assert status(rollout([two], [Tool()], ended={"ended_by": "world_error"}), "call_without_act") == "pass"
    failed(rollout([two], [Tool(), Tool(), Tool()]), "act_without_call", "call_executed_twice")
    lines = [Call(content="list_tickets P1\nget_owner O1"), Call(content="list_tickets P2"), Call(content="DONE")]
    made = [Tool(by=0), Tool("get_owner", by=0)]
    failed(rollout(lines, made, tool_format="compact"), "call_without_act", "call_dropped_by_parser")
    assert status(rollout(lines, [*made, Tool(by=1)], tool_format="compact"), "call_without_act") == "pass"


def test_a20_a_length_stop_taken_for_a_malformed_call_or_for_an_end_fails() -> None:
    cut = Call(tool_calls=[("edit", '{"code')], finish="length")
    failed(rollout([cut], [Tool("edit", '{"code', None, error="malformed_arguments")]), "length_vs_parse", "length_stop_as_failure")
    assert status(rollout([Call(finish="length")], ()), "length_vs_parse") == "pass"
    own = rollout(tools=[Tool("edit", '{"code', None, error="malformed_arguments")])
    assert status(own, "length_vs_parse") == "skip"
    failed(rollout([Call(finish="length")], ()), "finish_reason_vs_outcome", "length_stop_as_failure")
    failed(rollout(ended={"ended_by": "token_limit"}), "finish_reason_vs_outcome", "length_stop_as_failure")
    assert status(rollout([Call(finish="length")], (), ended={"ended_by": "token_limit"}), "finish_reason_vs_outcome") == "pass"
    failed(rollout([Call(finish="tool_calls"), HEALTHY[1]], ()), "finish_reason_vs_outcome", "call_dropped_by_parser")
    assert status(rollout(), "finish_reason_vs_outcome") == "pass"


def test_a17_a_finished_rollout_without_a_model_call_fails_and_one_that_never_began_does_not() -> None:
    failed(rollout([], (), rewards=({"value": 0.0},)), "no_model_call", "no_model_call")
    failed(rollout([], (), rewards=()), "no_model_call", "no_model_call")
    assert status(rollout([], (), ended={"ended_by": "world_error"}, rewards=()), "no_model_call") == "pass"
    assert status(rollout(), "no_model_call") == "pass"
    assert status(rollout(running=True), "no_model_call") == "skip"


def test_a7_a_trainable_rollout_without_any_token_ids_fails() -> None:
    failed(rollout([Call(content="Done.")], ()), "no_model_call", "capture_gap")
    assert status(rollout([Call(content="Done.")], (), member={"trainable": False}), "no_model_call") == "pass"


def test_a18_an_answer_without_usage_and_model_fails() -> None:
    banner = Call(content="v1.2.3", answer={"model": None}, called={"usage": {"prompt_tokens": None}})
    failed(rollout([banner], ()), "usage_null", "credentials_missing")
    failed(rollout([banner], ()), "actual_model_null", "credentials_missing")
    assert status(rollout(), "usage_null") == "pass" and status(rollout(), "actual_model_null") == "pass"
    assert status(rollout([banner], (), member={"endpoint": "scripted"}), "usage_null") == "skip"


def test_a1_a_rollout_that_used_up_its_time_and_says_that_it_finished_fails() -> None:
    late = {"wall_s": 60.1, "sampling_s": 60.0, "tool_s": 0.1}
    failed(rollout(ended=late), "elapsed_vs_budget", "time_misreported")
    assert status(rollout(ended={**late, "ended_by": "wall_clock"}), "elapsed_vs_budget") == "pass"
    assert status(rollout(ended=late, limits={"wall_s": 900.0}), "elapsed_vs_budget") == "pass"
    failed(rollout(ended={"tool_s": 9.0}), "elapsed_vs_budget", "time_misreported")
    slow = Call(content="Done.", called={"latency_s": 30.0})
    failed(rollout([slow], ()), "elapsed_vs_budget", "time_misreported")
    assert status(rollout([], (), ended={"wall_s": None, "sampling_s": None, "tool_s": None}), "elapsed_vs_budget") == "skip"


def test_a_tool_call_after_the_end_fails_acted_after_finish() -> None:
    made = Made()
    late = ModelCallDispatched(
        call_id="late", rollout_id="r", index=9, participant="agent", role="agent", request=made.blob({}), request_digest="0" * 64,
        upstream="u", model="tiny", stream_requested=False,
    )  # fmt: skip
    failed(rollout(after_end=[late]), "acted_after_finish", "acted_after_finish")
    said = HistoryRewritten(rollout_id="r", index=0, dropped=0, kept=1, summary=None, reason="late")
    assert status(rollout(after_end=[said]), "acted_after_finish") == "pass"
    assert status(rollout(running=True), "acted_after_finish") == "skip"


def test_a_read_that_changed_the_state_fails_unless_every_read_moves_a_clock() -> None:
    quiet, write = Tool(before="0", after="0"), Tool("send_email", before="0", after="1")
    assert status(rollout(tools=[quiet, write]), "read_changed_state") == "pass"
    loud = Tool("get_owner", before="1", after="2")
    failed(rollout(tools=[quiet, write, loud]), "read_changed_state", "read_changed_state")
    ticking = [Tool(before="0", after="1"), Tool("get_owner", before="1", after="2")]
    assert status(rollout(tools=ticking), "read_changed_state") == "skip"
    offered = [{"type": "function", "function": {"name": "peek", "annotations": {"readOnlyHint": True}}}]
    calls = [replace(HEALTHY[0], request={"tools": offered}), HEALTHY[1]]
    failed(rollout(calls, [quiet, Tool("peek", before="0", after="3")]), "read_changed_state", "read_changed_state")


def test_a_state_that_no_call_left_fails_state_chain() -> None:
    chain = [Tool(before="0", after="1"), Tool(before="1", after="2")]
    assert status(rollout(tools=chain), "state_chain") == "pass"
    failed(rollout(tools=[chain[0], Tool(before="x", after="2")]), "state_chain", "state_corrupted")
    failed(rollout(tools=chain, states=("0", "x")), "state_chain", "state_corrupted")
    failed(rollout(tools=chain, verdicts=({"state_end": "e" * 64},)), "state_chain", "state_corrupted")


def test_formats_02_a_retry_that_does_not_say_so_fails_and_a_named_one_does_not() -> None:
    broken = Call(called={"status": "upstream_error", "response": None}, request={"n": 0})
    again = Call(content="Done.", request={"n": 0, "messages": [USER]})
    first = replace(broken, request={"n": 0, "messages": [USER]})
    failed(rollout([first, again], ()), "hidden_retry", "hidden_retry")
    assert status(rollout([first, replace(again, sent={"retry_of": "c0"})], ()), "hidden_retry") == "pass"
    samples = [replace(again, content="One."), replace(again, content="Two.")]
    assert status(rollout(samples, ()), "hidden_retry") == "pass"
    failed(rollout(started={"attempt": 2}), "hidden_retry", "hidden_retry")
    failed(rollout(ended={"model_calls": 3}), "hidden_retry", "hidden_retry")
    failed(rollout(ended={"calls_digest": "0" * 64}), "hidden_retry", "hidden_retry")


def test_k1_a_history_that_was_cut_without_a_word_fails_segment_graph_complete() -> None:
    def asks(*messages: dict[str, str], **given: Any) -> Call:
        return Call(content="Done.", request={"messages": list(messages)}, **given)

    more = {"role": "user", "content": "And now?"}
    whole = [asks(USER), asks(USER, DONE, more), asks(USER, DONE, more, DONE, more)]
    assert status(rollout(whole, ()), "segment_graph_complete") == "pass"
    cut = [*whole, asks(USER, more, DONE, more)]
    failed(rollout(cut, ()), "segment_graph_complete", "history_cut")
    said = HistoryRewritten(rollout_id="r", index=0, dropped=1, kept=3, summary=None, reason="truncation", before_call=3)
    assert status(rollout(cut, (), before=[said]), "segment_graph_complete") == "pass"
    summed = [*whole, asks(USER, sent={"role": "summary"}, called={"role": "summary"}), asks(USER, more)]
    assert status(rollout(summed, ()), "segment_graph_complete") == "pass"
    title = asks({"role": "user", "content": "Name this conversation."})
    assert status(rollout([title, *whole], ()), "segment_graph_complete") == "pass"
    thought = {"role": "assistant", "content": "<think>hm</think>Done."}
    stripped = [asks(USER), asks(USER, thought, more), asks(USER, DONE, more, DONE, more)]
    assert status(rollout(stripped, ()), "segment_graph_complete") == "pass"
    assert status(rollout([], ()), "segment_graph_complete") == "skip"


def test_k3_one_answer_recorded_as_two_calls_fails_duplicate_segment_and_two_samples_alike_do_not() -> None:
    one = Call([9, 1], [4, 5], [-0.1, -0.1], answer={"id": "chat-x"})
    failed(rollout([one, one], ()), "duplicate_segment", "token_trained_twice")
    alike = replace(one, answer={"id": "chat-y"})
    assert status(rollout([one, alike], ()), "duplicate_segment") == "pass"
    assert status(rollout([one, replace(one, sent={"retry_of": "c0"})], ()), "duplicate_segment") == "pass"
    assert status(rollout([Call()], ()), "duplicate_segment") == "skip"


def test_h4_calls_that_lost_their_other_half_fail_orphan_model_call() -> None:
    good = rollout()
    assert status(good, "orphan_model_call") == "pass"
    unanswered = replace(good, calls=(replace(good.calls[0], answered=None, answered_id=None), *good.calls[1:]))
    failed(unanswered, "orphan_model_call", "capture_gap")
    failed(replace(good, calls=(replace(good.calls[0], sent=None, sent_id=None), *good.calls[1:])), "orphan_model_call", "capture_gap")
    failed(rollout(tools=[Tool(by=7)]), "orphan_model_call", "capture_gap")
    failed(rollout(member={"name": "somebody"}), "orphan_model_call", "capture_gap")
    broke = rollout(ended={"ended_by": "engine_error"})
    assert status(replace(broke, calls=unanswered.calls), "orphan_model_call") == "pass"
    assert status(rollout([], ()), "orphan_model_call") == "skip"
