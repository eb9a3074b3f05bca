"""The linker: longest common prefix over all known calls, ties to the latest, each token held once."""

import tracemalloc

import numpy as np
from hypothesis import given

from ledger.token_calls import IDS, Ids, TokenCall
from ledger.token_link import Linker
from tests.token_histories import event, histories, ids


def common(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix, one id at a time."""
    size = 0
    while size < min(len(left), len(right)) and left[size] == right[size]:
        size += 1
    return size


def sequence(call: TokenCall) -> Ids:
    assert call.prompt is not None
    return call.prompt if call.sampled is None else np.concatenate([call.prompt, call.sampled])


@given(histories())
def test_the_parent_is_the_latest_call_with_the_longest_common_prefix(calls: list[TokenCall]) -> None:
    linker, known = Linker(), []
    for call in calls:
        if call.prompt is None:
            continue
        link = linker.find(call.prompt)
        best = max((common(call.prompt, sequence(other)) for other in known), default=0)
        latest = [other.event_id for other in known if common(call.prompt, sequence(other)) == best]
        assert (link.shared, link.parent) == (best, latest[-1] if best else None)
        assert link.suffix.tolist() == call.prompt[best:].tolist()
        linker.add(call.event_id, call.prompt, call.sampled)
        known.append(call)


def test_asking_does_not_make_a_call_known() -> None:
    linker = Linker()
    linker.find(ids(1, 2, 3))
    assert linker.find(ids(1, 2, 3)).parent is None


def test_a_call_without_completion_and_an_empty_prompt_are_linked() -> None:
    linker = Linker()
    linker.add(event(0), ids(), ids())
    linker.add(event(1), ids(5, 6), None)
    assert linker.find(ids()).parent is None
    assert (linker.find(ids(5, 7)).parent, linker.find(ids(5, 7)).shared) == (event(1), 1)


def test_callers_may_reuse_the_arrays_that_they_gave() -> None:
    linker, prompt = Linker(), ids(1, 2, 3)
    linker.add(event(0), prompt, None)
    prompt[:] = 9
    assert linker.find(ids(1, 2, 3)).shared == 3


def test_a_chain_of_long_calls_holds_each_token_once() -> None:
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 50_000, 140_000).astype(IDS)
    linker = Linker()
    tracemalloc.start()
    for n in range(200):
        end = 100_000 + 200 * n
        link = linker.find(whole[:end])
        assert link.shared == (0 if n == 0 else end - 100)
        linker.add(event(n), whole[:end].copy(), whole[end : end + 100].copy())
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 2.5 * whole.nbytes
