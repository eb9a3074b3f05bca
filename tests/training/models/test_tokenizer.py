"""A policy's own tokenizer and template: words as tokens, nothing lost, and prompts that go on from what was sampled."""

import json
from pathlib import Path

import pytest
import torch

from ledger.errors import PolicyFolderError
from training.models.causal_lm import CausalLM, weights_to_save
from training.models.folder import write_folder
from training.models.presets import preset_of
from training.models.tokenizer import END, SPECIAL, Chat, policy_files, trained_tokenizer
from training.traces import Message, compact_messages
from training.worlds import ToolCall
from training.worlds.ticket_desk import TicketDesk
from training.worlds.ticket_desk.scripts import oracle
from training.worlds.ticket_desk.synthesis import slice_tasks

DRAFTS = slice_tasks(6, 11, "train")
DESK = TicketDesk()


def conversation(number: int) -> list[Message]:
    """The oracle's whole conversation in a task, in the compact form."""
    draft = DRAFTS[number]
    state, tools = DESK.reset(draft, seed=0), DESK.tools(draft, turn=0)
    said: list[Message] = [{"role": "system", "content": draft.request["system"]}, *draft.request["turns"][0]]
    for turn in oracle(draft):
        calls = [{"function": {"name": name, "arguments": raw}} for name, raw in turn.tool_calls]
        said.append({"role": "assistant", "content": turn.content, "tool_calls": calls})
        for name, raw in turn.tool_calls:
            state, observation = DESK.call(state, ToolCall(name, json.loads(raw)))
            said.append({"role": "tool", "content": observation.content})
    return list(compact_messages(said, tools))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tokenizer = trained_tokenizer(str(message["content"]) for number in range(4) for message in conversation(number))
    files = policy_files(tokenizer, preset_of("0.2M"))
    model = CausalLM(files.config).initialise(torch.Generator().manual_seed(0))
    return write_folder(tmp_path_factory.mktemp("policies") / "tiny", files, weights_to_save(model))


@pytest.fixture(scope="module")
def chat(folder: Path) -> Chat:
    return Chat(folder)


def test_every_word_of_the_texts_is_one_token_and_any_text_comes_back() -> None:
    tokenizer = trained_tokenizer(["mail ann.fox@desk.example T46", "T46 Ann Fox"])
    assert tokenizer.encode(" mail ann.fox@desk.example T46").tokens == ["Ġmail", "Ġann.fox@desk.example", "ĠT46"]
    for text in (" mail T47", "zwölf  Uhr\n\t7", " T46 \U0001f600", "a ", ""):
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_the_tokenizer_depends_on_the_words_and_not_on_their_order() -> None:
    one, two = trained_tokenizer(["b a", "c b"]), trained_tokenizer(["c b", "a b"])
    assert one.to_str() == two.to_str()
    assert one.to_str() != trained_tokenizer(["b a"]).to_str()
    assert trained_tokenizer(["b a", "c b"], at_least=2).get_vocab_size() == one.get_vocab_size() - 2
    assert [one.id_to_token(place) for place in range(len(SPECIAL))] == list(SPECIAL)


@pytest.mark.parametrize("number", range(len(DRAFTS)))
def test_each_prompt_of_an_oracle_conversation_is_the_last_one_with_what_was_sampled(chat: Chat, number: int) -> None:
    said = conversation(number)
    answers = [place for place, message in enumerate(said) if message["role"] == "assistant"]
    assert len(answers) > 3
    known: list[int] = []
    for place in answers:
        prompt = chat.ids(said[:place], answering=True)
        assert prompt[: len(known)] == known
        sampled = chat.encoded(f" {said[place]['content']}{END}")[0]
        assert sampled[-1] == chat.end_id and chat.end_id not in sampled[:-1]
        assert chat.text(sampled).strip() == said[place]["content"]
        known = [*prompt, *sampled]
        assert chat.ids(said[: place + 1], answering=False) == known


def test_messages_encoded_one_by_one_are_the_conversation(chat: Chat) -> None:
    said = conversation(0)
    one_by_one = [token for message in said for token in chat.ids([message], answering=False)]
    assert one_by_one == chat.ids(said, answering=False)


def test_a_sampled_answer_with_the_blank_that_begins_it_renders_as_it_was_sampled(chat: Chat) -> None:
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": " mail T46 "}]
    assert chat.rendered(said, answering=False) == f"<|user|> x<|assistant|> mail T46{END}"


def test_texts_and_ids_are_those_of_transformers(chat: Chat, folder: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    said = [*conversation(1), {"role": "user", "content": "zwölf  Uhr\n\t7 \U0001f600"}]
    for answering in (False, True):
        text = chat.rendered(said, answering=answering)
        assert text == theirs.apply_chat_template(said, tokenize=False, add_generation_prompt=answering)
        found = theirs(text, add_special_tokens=False, return_offsets_mapping=True)
        assert chat.encoded(text) == (found["input_ids"], found["offset_mapping"])
    assert chat.end_id == theirs.eos_token_id


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PolicyFolderError, match=r"\.json"):
        Chat(tmp_path)


def test_a_role_that_the_template_does_not_know_is_refused(chat: Chat) -> None:
    with pytest.raises(Exception, match="role critic; allowed: system"):
        chat.rendered([{"role": "critic", "content": "no"}], answering=False)
