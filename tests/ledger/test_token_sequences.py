"""Reconstruction: whole arrays, views of shared buffers, one hash a token, and errors that name the event."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger.errors import TokenError
from ledger.token_calls import IDS, LOGPROBS, Commitment, TokenCall, TokenRow
from ledger.token_link import Linker
from ledger.token_pack import linked, pack, pack_rows, unpack
from ledger.token_sequences import reconstruct
from tests.ledger.test_token_link import common, sequence
from tests.token_histories import SALT, commitments, event, histories, ids, plain


def stored_ids(rows: list[TokenRow]) -> int:
    return sum(len(array) for row in rows for array in (row.suffix, row.sampled) if array is not None)


def live(calls: list[TokenCall]) -> list[TokenRow]:
    """Rows as a gateway writes them: each beside the best parent at that moment."""
    linker, rows = Linker(), []
    for call in calls:
        if call.prompt is None:
            rows.append(TokenRow(call.event_id, None, 0, None, call.sampled, call.logprobs))
            continue
        link = linker.find(call.prompt)
        linker.add(call.event_id, call.prompt, call.sampled)
        rows.append(TokenRow(call.event_id, link.parent, link.shared, link.suffix, call.sampled, call.logprobs))
    return rows


def chain(calls: int = 20, opening: int = 50) -> list[TokenCall]:
    rng = np.random.default_rng(3)
    whole = rng.integers(0, 50_000, opening + 9 * calls).astype(IDS)
    ends = [opening + 9 * n for n in range(calls)]
    scores = [-rng.random(5).astype(LOGPROBS) for _ in ends]
    return [TokenCall(event(n), whole[:end], whole[end : end + 5], scores[n]) for n, end in enumerate(ends)]


@given(histories(), st.integers(0, 12), st.randoms())
def test_packs_and_live_rows_give_back_every_call(calls: list[TokenCall], packed: int, order: object) -> None:
    rows = [*unpack(pack(calls[:packed])).rows(), *live(calls)[packed:]]
    order.shuffle(rows)  # type: ignore[attr-defined]
    whole = reconstruct(rows, commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}
    assert whole.hashed_ids <= stored_ids(rows)


@given(histories(), st.data())
def test_any_true_parent_will_do(calls: list[TokenCall], data: st.DataObject) -> None:
    rows: list[TokenRow] = []
    for n, call in enumerate(calls):
        row = TokenRow(call.event_id, None, 0, call.prompt, call.sampled, call.logprobs)
        known = [other for other in calls[:n] if other.prompt is not None]
        if call.prompt is not None and known:
            parent = data.draw(st.sampled_from(known))
            shared = data.draw(st.integers(0, common(call.prompt, sequence(parent))))
            if shared:
                row = replace(row, parent=parent.event_id, shared=shared, suffix=call.prompt[shared:])
        rows.append(row)
    whole = reconstruct(rows, commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}
    assert whole.hashed_ids <= stored_ids(rows)


def test_prompts_of_a_chain_are_views_of_one_buffer_hashed_once() -> None:
    calls = chain()
    whole = reconstruct(unpack(pack(calls)), commitments(calls), SALT)
    assert whole.buffers == 1
    assert whole.hashed_ids == len(calls[-1].prompt)
    last = whole.calls[calls[-1].event_id].prompt
    assert all(np.shares_memory(whole.calls[call.event_id].prompt, last) for call in calls)


def test_many_samples_of_one_prompt_do_not_copy_or_hash_it_again() -> None:
    prompt = np.arange(1000, dtype=IDS)
    calls = [TokenCall(event(n), prompt, ids(n, n), None) for n in range(16)]
    whole = reconstruct(unpack(pack(calls)), commitments(calls), SALT)
    assert (whole.buffers, whole.buffered_ids, whole.hashed_ids) == (1, 1002, 1000)


def test_a_sub_agent_resumes_inside_its_parents_prompt() -> None:
    calls = [TokenCall(event(0), np.arange(1000, dtype=IDS), ids(1), None)]
    calls += [TokenCall(event(n), np.append(np.arange(600, dtype=IDS), 5 + n).astype(IDS), None, None) for n in (1, 2)]
    whole = reconstruct(linked(calls), commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}
    assert whole.hashed_ids == 600 + 1 + 1 + 400


def test_hundred_thousand_token_prompts_come_back() -> None:
    calls = chain(5, opening=100_000)
    whole = reconstruct(unpack(pack(calls)), commitments(calls), SALT)
    assert [plain(whole.calls[call.event_id]) for call in calls] == [plain(call) for call in calls]


def test_no_reader_can_write_into_the_shared_buffers() -> None:
    calls = chain(2)
    got = reconstruct(unpack(pack(calls)), commitments(calls), SALT).calls[event(1)]
    for array in (got.prompt, got.sampled, got.logprobs):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


@pytest.mark.parametrize(("name", "said"), [("prompt", "prompt_ids"), ("sampled", "sampled_ids"), ("logprobs", "logprobs")])
def test_an_array_that_is_not_the_committed_one_is_named(name: str, said: str) -> None:
    calls = chain(3)
    told = commitments(calls)
    was = getattr(told[event(1)], name)
    wrong_hash = told | {event(1): replace(told[event(1)], **{name: Commitment("0" * 64, was.count)})}
    wrong_count = told | {event(1): replace(told[event(1)], **{name: Commitment(was.sha256, was.count + 1)})}
    absent = told | {event(1): replace(told[event(1)], **{name: None})}
    for bad in (wrong_hash, wrong_count, absent):
        with pytest.raises(TokenError, match=f"{event(1)}: {said}"):
            reconstruct(linked(calls), bad, SALT)


def test_another_subjects_salt_does_not_verify() -> None:
    with pytest.raises(TokenError, match="prompt_ids do not match"):
        reconstruct(linked(chain(2)), commitments(chain(2)), b"other")


def test_a_missing_parent_is_named() -> None:
    rows = linked(chain(3))
    with pytest.raises(TokenError, match=f"{event(1)} continues call {event(0)}, which is not stored"):
        reconstruct(rows[1:], commitments(chain(3)), SALT)


def test_a_circle_of_parents_is_an_error() -> None:
    rows = linked(chain(3))
    rows[0] = replace(rows[0], parent=event(2), shared=1)
    with pytest.raises(TokenError, match="ancestor of itself"):
        reconstruct(rows, commitments(chain(3)), SALT)
    rows[0] = replace(rows[0], parent=event(0))
    with pytest.raises(TokenError, match="ancestor of itself"):
        reconstruct(rows, commitments(chain(3)), SALT)


def test_sharing_more_than_the_parent_has_is_an_error() -> None:
    rows = linked(chain(2))
    for shared, match in ((56, f"shares 56 tokens with call {event(0)}, which has 55"), (0, "shares 0 tokens"), (-1, "shares -1 tokens")):
        with pytest.raises(TokenError, match=match):
            reconstruct([rows[0], replace(rows[1], shared=shared)], commitments(chain(2)), SALT)


def test_rows_and_commitments_must_name_the_same_events_once() -> None:
    rows, told = linked(chain(2)), commitments(chain(2))
    with pytest.raises(TokenError, match=f"{event(1)} has no stored tokens"):
        reconstruct(rows[:1], told, SALT)
    with pytest.raises(TokenError, match=f"{event(1)} has stored tokens, but"):
        reconstruct(rows, commitments(chain(1)), SALT)
    with pytest.raises(TokenError, match=f"{event(1)} is stored twice"):
        reconstruct([*rows, replace(rows[1])], told, SALT)


@given(histories())
def test_a_pack_in_another_order_than_ours_gives_back_every_call_too(calls: list[TokenCall]) -> None:
    by_length = sorted(linked(calls), key=lambda row: row.shared + (0 if row.suffix is None else len(row.suffix)))
    known: set[str | None] = {None}
    rows = []
    while by_length:
        row = next(row for row in by_length if row.parent in known)
        by_length.remove(row)
        known.add(row.event_id)
        rows.append(row)
    whole = reconstruct(unpack(pack_rows(rows)), commitments(calls), SALT)
    assert {plain(call) for call in whole.calls.values()} == {plain(call) for call in calls}
