"""Faults between harness and engine: each strikes once, is labelled once, and leaves what a real one leaves."""

from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError
from training.rollout.answer_faults import AnswerFaults
from training.rollout.episode import Answer, SampledCall
from training.rollout.planting import Plants, check_faults
from training.rollout.scripted_tokens import END, prompt_ids, said, trace, words
from training.rollout.scripts import Scripts
from training.worlds import AssistantTurn
from training.worlds.fault_kinds import LengthStop, TemplateDrift
from training.worlds.fault_plan import Strike, declared_plan, read_plan

TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "s"}, {"role": "user", "content": "u"},
    {"role": "assistant", "content": "a0"}, {"role": "tool", "content": "t0"}, {"role": "assistant", "content": "a1"},
    {"role": "tool", "content": "t1"}, {"role": "assistant", "content": "a2"}, {"role": "tool", "content": "t2"},
]  # fmt: skip


class Rig:
    """A model that answers with one call, and what it was asked."""

    def __init__(self, *faults: dict[str, Any]) -> None:
        self.asked: list[list[str]] = []
        self.told: list[Strike] = []
        self.faults = AnswerFaults(read_plan(list(faults)), key=("k",), tell=self.told.append)
        self.ask = self.faults.through(self._answer)

    async def _answer(self, messages: Any, tools: Any, index: int) -> Answer:
        self.asked.append([message["content"] for message in messages])
        return Answer(None, (SampledCall("c", "look", "{}"),), "tool_calls", "id")


async def test_a_parser_that_drops_calls_gives_an_answer_without_them() -> None:
    rig = Rig({"kind": "call_dropped", "at": [1]})
    assert [len((await rig.ask(TALK, (), index)).tool_calls) for index in (0, 1, 2)] == [1, 0, 1]
    assert [strike.where for strike in rig.told] == ["answer:1"]


async def test_a_cut_history_stays_cut_and_a_call_made_again_is_labelled_once() -> None:
    rig = Rig({"kind": "history_cut", "at": [3]})
    for messages, index in ((TALK[:6], 2), (TALK, 3), (TALK, 3), ([*TALK, {"role": "assistant", "content": "a3"}], 4)):
        await rig.ask(messages, (), index)
    assert rig.asked == [["s", "u", "a0", "t0", "a1", "t1"], *[["s", "u", "a2", "t2"]] * 2, ["s", "u", "a2", "t2", "a3"]]
    assert [strike.where for strike in rig.told] == ["answer:3"]


async def test_a_history_of_one_answer_is_not_cut_and_not_labelled() -> None:
    rig = Rig({"kind": "history_cut", "rate": 1.0})
    await rig.ask(TALK[:4], (), 1)
    assert rig.asked == [["s", "u", "a0", "t0"]] and rig.told == []


def test_a_drifted_template_stays_and_a_length_stop_does_not() -> None:
    drift, stop = (Rig({"kind": kind, "at": [2]}).faults for kind in ("template_drift", "length_stop"))
    assert [type(drift.engine(index)) for index in range(4)] == [type(None), type(None), TemplateDrift, TemplateDrift]
    assert [type(stop.engine(index)) for index in range(4)] == [type(None), type(None), LengthStop, type(None)]


def test_a_scripted_engine_cuts_an_answer_and_says_length() -> None:
    scripts = Scripts()
    scripts.script(
        "r", [AssistantTurn(None, (("look", '{"at": "the desk"}'),))], faults=Rig({"kind": "length_stop", "at": [0]}).faults.engine
    )
    reply = scripts.reply("r", "", b'{"messages": []}')
    choice = reply.response["choices"][0]
    whole = said(AssistantTurn(None, (("look", '{"at": "the desk"}'),)))
    assert (choice["finish_reason"], "tool_calls" in choice["message"], reply.cut) == ("length", False, True)
    assert whole.startswith(choice["message"]["content"]) and 0 < len(choice["message"]["content"]) < len(whole)


def test_answers_end_at_the_tokens_asked_for_where_scripts_are_limited() -> None:
    for limited, finish in ((True, "length"), (False, "stop")):
        scripts = Scripts(limited=limited)
        scripts.script("r", [AssistantTurn("one two three four")])
        reply = scripts.reply("r", "", b'{"messages": [], "max_tokens": 2}')
        assert reply.response["choices"][0]["finish_reason"] == finish
    assert words("one two three four") == ["one", " two", " three", " four"]


def test_the_next_prompt_extends_what_was_sampled() -> None:
    turn = AssistantTurn("I look.", (("look", "{}"),))
    asked = [{"role": "user", "content": "please look"}]
    before = prompt_ids(asked, ())
    sampled = trace(before, said(turn), ended=True).sampled_ids
    assert sampled is not None
    ids = memoryview(sampled).cast("i").tolist()
    answered = {"role": "assistant", "content": "I look.", "tool_calls": [{"function": {"name": "look", "arguments": "{}"}}]}
    after = prompt_ids([*asked, answered, {"role": "tool", "content": "a desk"}], ())
    assert after[: len(before) + len(ids)] == [*before, *ids] and ids[-1] == END


def test_who_may_have_faults_of_the_engine() -> None:
    draft = BundleDraft("b", "w", {"turns": [[]]}, {})
    plants = Plants(read_plan([{"kind": "length_stop", "at": [0]}]), 1)
    check_faults(draft, plants, scripted=True)
    with pytest.raises(SettingsError, match="planted in an engine that samples"):
        check_faults(draft, plants, scripted=False)
    check_faults(draft, Plants(read_plan([{"kind": "call_dropped", "at": [0]}]), 1), scripted=False)
    with pytest.raises(BundleError, match="declares template_drift; allowed: faults of its world and its user"):
        declared_plan(BundleDraft("b", "w", {"turns": [[]]}, {}, spec={"faults": [{"kind": "template_drift", "at": [1]}]}))


def test_a_history_is_cut_only_where_there_is_one() -> None:
    with pytest.raises(SettingsError, match="allowed: at from 2 on"):
        read_plan([{"kind": "history_cut", "at": [1]}])
