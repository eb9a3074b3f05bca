"""N-grams and digests between splits, by hand."""

from dataclasses import replace
from typing import Any

from audit.bundle_batch import BundleBatch, grams_of, more_held_out, pools_of
from tests.audit.desk_gates import draft, drafts, ran, sealed, subject


def said(text: str, split: str, name: str, **more: Any) -> Any:
    return draft(name=name, split=split, request={"turns": [[{"role": "user", "content": text}]]}, **more)


def test_an_n_gram_is_a_run_of_words_and_a_short_text_is_one() -> None:
    assert grams_of("A b, c d!", 3) == [("a", "b", "c"), ("b", "c", "d")]
    assert grams_of("A b", 3) == [("a", "b")] and grams_of("", 3) == []


def test_the_share_is_that_of_the_worst_held_out_task() -> None:
    one = said("a b c d e", "train", "one")
    near, far = said("a b c d x", "test", "near"), said("a b c y z", "validation", "far")
    result = ran("split_leak", subject(one, among=[near, far]), ngram_words=3, ngram_share=0.6)["split.ngram_leak"]
    # abc, bcd, cde: two of three stand in `near`, one in `far`.
    assert result.status == "fail" and result.measured["share"] == round(2 / 3, 4)
    assert result.evidence == [{"held_out_task": "near", "share": 0.667}]
    assert ran("split_leak", subject(one, among=[near, far]), ngram_words=3, ngram_share=0.7)["split.ngram_leak"].status == "pass"


def test_test_is_held_out_from_all_and_train_from_none() -> None:
    assert [list(more_held_out(split)) for split in ("train", "validation", "test")] == [["validation", "test"], ["test"], []]


def test_the_same_text_on_the_same_state_is_a_leak_whatever_the_system_prompt() -> None:
    one = drafts()[0]
    provenance = {**one.provenance, "wording": "another"}
    other = replace(one, name="other", split="test", request={**one.request, "system": "x"}, provenance=provenance)
    faults = ran("split_leak", subject(one, among=[other]))["split.digest_leak"].evidence
    assert faults == [{"same": "text and initial state", "held_out_task": "other", "split": "test"}]


def test_pools_are_those_that_provenance_names() -> None:
    assert pools_of(draft(provenance={"family": "f", "names": ["n1", "n2"], "seed": 3})) == [
        ("family", "f"),
        ("names", "n1"),
        ("names", "n2"),
    ]
    one = said("a b", "train", "one", provenance={"names": ["n1"]})
    other = said("c d", "test", "other", provenance={"names": ["n1", "n2"]}, initial_state=drafts()[1].initial_state)
    assert "same names n1" in ran("split_leak", subject(one, among=[other]))["split.digest_leak"].reason


def test_a_batch_names_what_stands_in_two_splits_and_nothing_else() -> None:
    one = drafts()[0]
    apart = replace(one, name="apart", split="test", request={**one.request, "turns": [[{"role": "user", "content": "x"}]]}, provenance={})
    pooled = replace(apart, name="pooled", provenance={"names": ["a", "b"]})
    same = replace(one, name="same", provenance={"names": ["b"]})
    assert BundleBatch([sealed(one), sealed(apart)]).straddling == []
    assert BundleBatch([sealed(same), sealed(pooled)]).straddling == ["names b of same in test, train"]
    copied = replace(one, name="copied", split="validation", provenance={})
    assert BundleBatch([sealed(one), sealed(copied)]).straddling == [
        f"request of {one.name} in train, validation", f"text and initial state of {one.name} in train, validation",
    ]  # fmt: skip
