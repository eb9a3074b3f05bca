"""Builds rows from the model calls of a rollout: a call goes on a row whose tokens are a real prefix of its prompt. Pure."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ledger.errors import TokenError
from training.row_reasons import Seen, Text, agreement, position, why_opened
from training.rows import BuiltRows, OpenReason, Row, SampledTokens

Chain = list[Seen]


def build_rows(rollout_id: str, calls: Iterable[SampledTokens], *, text: Text | None = None) -> BuiltRows:
    """The rows of one rollout. Which rows there are follows from the tokens alone, not from the order in which calls arrived.

    A call goes on the call of its participant whose prompt and sample together are the longest real prefix of its prompt. Of several
    calls that go on the same tokens one stays in the row: one whose prompt does not hold the samples of the others, then the one with
    the longest conversation behind it, then by their tokens. Each other one opens a row, in which what stood before is context and not
    trained again.

    Of a call and its retries one sample is trained: the last one that the conversation went on from, else the last one.

    Args:
        rollout_id: whose.
        calls: its model calls that have tokens, in any order.
        text: token ids to their text, which tells a re-tokenised tail from a parser's change; it changes reasons alone.
    Raises:
        TokenError: a call is given twice.
    """
    counters: Counter[str] = Counter()
    seen = sorted((Seen.of(call) for call in _usable(calls, counters)), key=lambda call: call.order)
    seen = _without_superseded(seen, counters)
    participants: dict[str, list[Seen]] = {}
    for call in seen:
        participants.setdefault(call.tokens.participant, []).append(call)
    chains = [chain for mine in participants.values() for chain in _chains(mine)]
    chains.sort(key=lambda chain: chain[0].order)
    rows = []
    for index, chain in enumerate(chains):
        left, shared = _left(chain[0], chains)
        reason: OpenReason = "start" if index == 0 else "participant"
        if left is not None:
            reason = why_opened(chain[0], chains[left], shared, seen, text)
        linked = left is not None and reason != "start"
        rows.append(_row(rollout_id, index, chain, reason, (left, shared) if linked else (None, None)))
        counters[f"rows_opened:{reason}"] += 1
    return BuiltRows(tuple(rows), dict(sorted(counters.items())))


def _usable(calls: Iterable[SampledTokens], counters: Counter[str]) -> list[SampledTokens]:
    """The calls whose sample can be trained or shown; the others are counted, never mended."""
    usable: dict[str, SampledTokens] = {}
    for call in calls:
        if call.call_id in usable:
            raise TokenError(f"call {call.call_id!r} is given twice; allowed: once")
        why = _fault(call)
        if why is not None:
            counters[f"left_out:{why}"] += 1
            continue
        if call.trainable and call.logprobs is None:
            counters["samples_without_logprobs"] += 1
        if call.trainable and call.processed:
            counters[f"processed:{call.logprobs_mode or 'no_logprobs'}"] += 1
        usable[call.call_id] = call
    return list(usable.values())


def _fault(call: SampledTokens) -> str | None:
    if len(call.sampled_ids) == 0:
        return "no_sampled_tokens"
    if len(call.prompt_ids) == 0:
        return "no_prompt_tokens"
    if call.logprobs is not None and len(call.logprobs) != len(call.sampled_ids):
        return "logprobs_of_another_length"
    if call.logprobs is not None and not np.isfinite(call.logprobs).all():
        return "logprobs_not_finite"
    return None


def _without_superseded(calls: list[Seen], counters: Counter[str]) -> list[Seen]:
    """The calls without those that another attempt at the same request replaced."""
    repeats = {call.tokens.call_id: call.tokens.retry_of for call in calls}
    attempts: dict[str, list[Seen]] = {}
    for call in calls:
        root, walked = call.tokens.call_id, {call.tokens.call_id}
        while (before := repeats.get(root)) is not None and before not in walked:
            walked.add(before)
            root = before
        attempts.setdefault(root, []).append(call)
    dropped: set[str] = set()
    for group in attempts.values():
        if len(group) > 1:
            others = [call for call in calls if call not in group and call.tokens.participant == group[0].tokens.participant]
            used = [call for call in group if any(other.goes_on(call) for other in others)]
            kept = (used or group)[-1]
            dropped |= {call.tokens.call_id for call in group if call is not kept}
    if dropped:
        counters["left_out:superseded"] += len(dropped)
    return [call for call in calls if call.tokens.call_id not in dropped]


def _chains(calls: Sequence[Seen]) -> list[Chain]:
    """The calls of one participant as chains, each call in one of them, each going on the one before it."""
    alike = _alike(calls)
    ends = [group[0].end for group in alike]
    children: list[list[Seen]] = [[] for _ in alike]
    for call in calls:
        for n in range(bisect_right(ends, call.start) - 1, -1, -1):
            if call.goes_on(alike[n][0]):
                children[n].append(call)
                break
    depth: dict[str, int] = {}
    follows: dict[str, Seen] = {}
    for group, below in zip(reversed(alike), reversed(children), strict=True):
        if len(below) > 1:
            later = {call.tokens.call_id: _answers_within(call, group[0].end, below) for call in below}
            below.sort(key=lambda call: (later[call.tokens.call_id], -depth[call.tokens.call_id], call.whole, call.order))
        behind = 1 + max((depth[child.tokens.call_id] for child in below), default=0)
        depth |= {call.tokens.call_id: behind for call in group}
        follows |= {parent.tokens.call_id: child for parent, child in zip(group, below, strict=False)}
    inner = {child.tokens.call_id for child in follows.values()}
    return [_from(head, follows) for head in calls if head.tokens.call_id not in inner]


def _alike(calls: Sequence[Seen]) -> list[list[Seen]]:
    """The calls with those of the very same tokens together, shorter ones first."""
    by_length: dict[int, list[list[Seen]]] = {}
    for call in calls:
        as_long = by_length.setdefault(call.end, [])
        for group in as_long:
            if group[0].whole == call.whole:
                group.append(call)
                break
        else:
            as_long.append([call])
    return [group for length in sorted(by_length) for group in by_length[length]]


def _answers_within(call: Seen, shared: int, others: Sequence[Seen]) -> int:
    """How many of the other samples stand in the prompt of `call` behind its first `shared` tokens: it came after those."""
    new = call.tokens.prompt_ids[shared:]
    return sum(other is not call and position(new, other.tokens.sampled_ids) is not None for other in others)


def _from(head: Seen, follows: dict[str, Seen]) -> Chain:
    chain = [head]
    while (after := follows.get(chain[-1].tokens.call_id)) is not None:
        chain.append(after)
    return chain


def _left(head: Seen, chains: Sequence[Chain]) -> tuple[int | None, int]:
    """Which of the rows that its participant had begun agrees with the prompt of `head` the longest, the latest of equals; how long."""
    best: tuple[int | None, int] = (None, -1)
    for index, chain in enumerate(chains):
        if chain[0].order >= head.order:
            break
        if chain[0].tokens.participant == head.tokens.participant:
            shared = agreement(chain[-1].ids, head.tokens.prompt_ids)
            if shared >= best[1]:
                best = (index, shared)
    return best


def _row(rollout_id: str, index: int, chain: Chain, reason: OpenReason, left: tuple[int | None, int | None]) -> Row:
    ids = chain[-1].ids
    mask = np.zeros(len(ids), dtype=np.bool_)
    logprob = np.full(len(ids), np.nan, dtype=np.float32)
    step = np.full(len(ids), -1, dtype=np.int32)
    for n, call in enumerate(chain):
        span = slice(call.start, call.end)
        mask[span] = call.tokens.trainable
        step[span] = n
        if call.tokens.logprobs is not None:
            logprob[span] = call.tokens.logprobs
    return Row(
        rollout_id=rollout_id, index=index, participant=chain[0].tokens.participant, ids_T=ids, mask_T=mask, logprob_T=logprob,
        step_T=step, call_ids=tuple(call.tokens.call_id for call in chain), open_reason=reason, diverges_at=left[1], left_row=left[0],
    )  # fmt: skip
