"""Decoding token by token: nothing is lost, nothing is invented."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from tests.builders import small_tokenizer
from training.rollout.decoding import find_folder, read_decoder


def test_texts_of_tokens_join_to_the_text(tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tiny", ["mail the owner of T104, then update_ticket"])
    decoder, tokenizer = read_decoder(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))

    @given(st.text(st.characters(codec="utf-8"), max_size=40))
    def whole(text: str) -> None:
        assert decoder.text(tokenizer.encode(text).ids) == text

    whole()


def test_half_a_character_is_written_as_bytes_and_an_unknown_id_as_itself(tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tiny", ["plain text"])
    decoder, tokenizer = read_decoder(folder), Tokenizer.from_file(str(folder / "tokenizer.json"))
    euro = tokenizer.encode("€").ids
    assert decoder.texts(euro) == ["\\xe2", "\\x82", "\\xac"]
    assert decoder.text(euro) == "€"
    assert decoder.texts([10**6]) == ["<1000000?>"]
    assert decoder.special == {tokenizer.token_to_id("<|im_start|>"), tokenizer.token_to_id("<|im_end|>")}


def test_a_tokenizer_is_found_by_its_digest_and_a_broken_manifest_is_passed_over(tmp_path: Path) -> None:
    folder = small_tokenizer(tmp_path / "tiny", ["plain text"])
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "tallystick.json").write_text("{", encoding="utf-8")
    digest = (folder / "tallystick.json").read_text(encoding="utf-8").split('"')[3]
    assert find_folder(tmp_path, digest) == folder
    assert find_folder(tmp_path, "0" * 64) is None
    assert find_folder(tmp_path / "nowhere", digest) is None
