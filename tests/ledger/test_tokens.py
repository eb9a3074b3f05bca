"""What a writer makes of a call's arrays: commitments over the whole arrays, bytes only of what the parent does not have."""

import hashlib
from datetime import UTC, datetime

import numpy as np
import pytest

from ledger.errors import InvalidEvent, SubjectDestroyed, TokenError
from ledger.subjects import Subject
from ledger.token_link import Link
from ledger.tokens import CapturedTokens, captured, ids_bytes, logprob_bytes
from tests.token_histories import event

WHO = Subject("project:test", b"salt", None)
PROMPT, SAMPLED, SCORES = ids_bytes([1, 2, 3]), ids_bytes([4, 5]), logprob_bytes([-0.5, -0.0])


def test_commitments_are_over_the_whole_arrays_and_the_prompt_is_staged_from_where_it_leaves_its_parent() -> None:
    made = captured((PROMPT, SAMPLED, SCORES), event_id=event(1), subject=WHO, link=Link(event(0), 2, np.array([3], "<i4")))
    assert made.prompt_ids is not None
    assert made.staged is not None
    assert (made.prompt_ids.count, made.prompt_ids.commitment) == (3, hashlib.sha256(b"salt" + PROMPT).hexdigest())
    assert (made.staged.parent, made.staged.shared, made.staged.prompt) == (event(0), 2, ids_bytes([3]))
    assert (made.staged.sampled, made.staged.logprobs, made.staged.subject_id) == (SAMPLED, SCORES, "project:test")


def test_an_array_that_was_not_captured_is_none_and_an_empty_one_is_empty() -> None:
    assert captured((None, None, None), event_id=event(1), subject=WHO) == CapturedTokens()
    made = captured((PROMPT, b"", None), event_id=event(1), subject=WHO)
    assert made.sampled_ids is not None
    assert made.staged is not None
    assert (made.sampled_ids.count, made.logprobs, made.staged.sampled, made.staged.logprobs) == (0, None, b"", None)


@pytest.mark.parametrize("place", [0, 1, 2])
def test_bytes_that_are_no_whole_number_of_entries_are_refused(place: int) -> None:
    arrays = [PROMPT, SAMPLED, SCORES]
    arrays[place] = arrays[place][:-1]
    with pytest.raises(TokenError, match="multiple of 4"):
        captured((arrays[0], arrays[1], arrays[2]), event_id=event(1), subject=WHO)


def test_a_link_to_more_than_the_prompt_has_is_refused() -> None:
    with pytest.raises(TokenError, match="3 tokens shares 4"):
        captured((PROMPT, None, None), event_id=event(1), subject=WHO, link=Link(event(0), 4, np.array([], "<i4")))


def test_nothing_is_committed_to_under_a_destroyed_salt() -> None:
    with pytest.raises(SubjectDestroyed, match="shredded"):
        captured((PROMPT, None, None), event_id=event(1), subject=Subject("gone", b"", None, datetime(2026, 1, 1, tzinfo=UTC)))


def test_ids_and_logprobs_outside_their_range_are_refused() -> None:
    assert np.frombuffer(ids_bytes([0, 2**31 - 1]), "<i4").tolist() == [0, 2**31 - 1]
    for bad in ([-1], [2**31]):
        with pytest.raises(InvalidEvent, match="allowed: 0..2147483647"):
            ids_bytes(bad)
    for score in (float("nan"), 0.5):
        with pytest.raises(InvalidEvent, match="allowed: numbers up to 0"):
            logprob_bytes([score])
