"""Messages to token ids: exactly what transformers makes of them, encoded piece by piece where that cannot differ."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer

from ledger.errors import EngineFailed, SettingsError
from tests.tiny_policy import CONTROL, tiny_policy
from training.rollout.torch_text import ChatText

CALL = {"id": "c1", "type": "function", "function": {"name": "w7", "arguments": '{"a": "w8"}'}}
CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "w1 w2"},
    {"role": "user", "content": "say  w3\n\nand T101 – w5<|end|> w6"},
    {"role": "assistant", "content": "w4 w5", "tool_calls": [CALL]},
    {"role": "tool", "content": "w6 ", "tool_call_id": "c1"},
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny_policy(tmp_path / "p")


def bytewise(folder: Path, pre_tokenizer: Any) -> Path:
    """The folder with a byte-level tokenizer, which keeps blanks and line ends."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={token: n for n, token in enumerate([*CONTROL, *alphabet])}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in CONTROL])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def as_transformers_does(folder: Path, messages: list[dict[str, Any]]) -> list[int]:
    """Token ids as transformers gives them, with arguments as objects."""
    parsed = [
        {
            **m,
            "tool_calls": [
                {**c, "function": {**c["function"], "arguments": json.loads(c["function"]["arguments"])}} for c in m["tool_calls"]
            ],
        }
        if "tool_calls" in m
        else m
        for m in messages
    ]
    found = AutoTokenizer.from_pretrained(folder).apply_chat_template(parsed, add_generation_prompt=True, tokenize=True, return_dict=False)
    return [int(token) for token in found]


def test_ids_are_those_of_transformers(folder: Path) -> None:
    text = ChatText(folder)
    assert text.by_pieces
    for length in range(1, 5):
        assert text.prompt_ids(CHAT[:length], []) == as_transformers_does(folder, CHAT[:length])


@pytest.mark.parametrize(
    ("split", "by_pieces"),
    [
        (pre_tokenizers.ByteLevel(add_prefix_space=False), True),
        (
            pre_tokenizers.Sequence(
                [pre_tokenizers.Split(Regex(r" ?\S+|\s"), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
            ),
            True,
        ),
        (pre_tokenizers.ByteLevel(add_prefix_space=True), False),
        (pre_tokenizers.Metaspace(), False),
    ],
)
def test_pieces_are_remembered_only_where_they_stand_for_themselves(folder: Path, split: Any, by_pieces: bool) -> None:
    text = ChatText(bytewise(folder, split))
    assert text.by_pieces is by_pieces
    assert text.prompt_ids(CHAT, []) == as_transformers_does(folder, CHAT)


def test_an_answer_is_text_without_control_tokens(folder: Path) -> None:
    text = ChatText(bytewise(folder, pre_tokenizers.ByteLevel(add_prefix_space=False)))
    ids = text._encode("Grüße an T101<|end|>")
    assert (text.text(ids), text.stop_ids) == ("Grüße an T101", frozenset({1}))


def test_stop_ids_are_all_that_the_folder_names(folder: Path) -> None:
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [3, 4]}))
    assert ChatText(folder).stop_ids == {1, 3, 4}


def test_what_a_template_refuses_and_what_a_folder_lacks_is_named(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{{ raise_exception('role judge; allowed: user') }}")
    with pytest.raises(SettingsError, match="the chat template refuses these messages: role judge; allowed: user"):
        ChatText(folder).prompt_ids(CHAT, [])
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(EngineFailed, match=r"has no chat_template.jinja; expected a model folder"):
        ChatText(folder)
