"""Why a prompt did not go on from what had been sampled: decided from where it diverges and from what appears again behind it. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from training.rows import Ids, OpenReason, SampledTokens

Text = Callable[[Sequence[int]], str]
"""Token ids to their text, control tokens included."""

_NAMED: dict[str, OpenReason] = {
    "compaction": "compaction", "truncation": "truncation", "parser": "parser", "template": "template", "retokenise": "retokenise"
}  # fmt: skip
_ENDED_ITSELF = ("stop", "tool_calls")
"""Finish reasons after which the last sampled token is the end of the turn."""


@dataclass(frozen=True, eq=False)
class Seen:
    """A model call with its tokens as bytes, which compare several times faster than arrays.

    Attributes:
        tokens: the call.
        whole: prompt and sampled ids.
    """

    tokens: SampledTokens
    whole: bytes

    @staticmethod
    def of(tokens: SampledTokens) -> "Seen":
        """A call made ready for comparing."""
        return Seen(tokens, np.concatenate([tokens.prompt_ids, tokens.sampled_ids], dtype=np.int32).tobytes())

    def goes_on(self, other: "Seen") -> bool:
        """Whether the other's prompt and sample are a prefix of this prompt."""
        return other.end <= self.start and self.whole.startswith(other.whole)

    def same_prompt(self, other: "Seen") -> bool:
        """Whether the prompts are equal."""
        return self.start == other.start and np.array_equal(self.tokens.prompt_ids, other.tokens.prompt_ids)

    @property
    def order(self) -> tuple[int, str]:
        """By dispatch; the id decides between calls of one index."""
        return self.tokens.index, self.tokens.call_id

    @property
    def start(self) -> int:
        """Index of the first sampled token."""
        return len(self.tokens.prompt_ids)

    @property
    def end(self) -> int:
        """Index after the last sampled token."""
        return self.start + len(self.tokens.sampled_ids)

    @cached_property
    def ids(self) -> Ids:
        """Prompt and sampled ids."""
        return np.frombuffer(self.whole, dtype=np.int32)


def agreement(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if same.all() else int(same.argmin())


def why_opened(head: Seen, row: Sequence[Seen], shared: int, calls: Sequence[Seen], text: Text | None) -> OpenReason:
    """Why `head` opened a row although its participant had one.

    Args:
        head: the first call of the new row.
        row: the calls of the row that it left.
        shared: number of tokens on which the prompt agrees with that row; the next one differs.
        calls: all calls of the rollout.
        text: token ids to their text, None where no tokenizer is at hand.
    """
    if head.tokens.rewritten is not None:
        return _NAMED.get(head.tokens.rewritten, "history_rewritten")
    mine = [call for call in calls if call.tokens.participant == head.tokens.participant and call is not head]
    if any(call.same_prompt(head) for call in mine):
        return "parallel"
    new = head.tokens.prompt_ids[shared:]
    if len(new) == 0:
        return "truncation"
    for n, call in enumerate(row):
        if call.start <= shared < call.end:
            changed = _in_sample(call, row[n + 1] if n + 1 < len(row) else None, shared, new, text)
            if changed is not None:
                return changed
            break
    return _rest(head, row, shared, calls)


def _in_sample(call: Seen, after: Seen | None, shared: int, new: Ids, text: Text | None) -> OpenReason | None:
    """The reason when the prompt has the sample in another form; None when it does not have it at all.

    What stands in the place of the rest of the sample is told by what follows it in the row, else by the sample's own last tokens.
    """
    rest = call.ids[shared : call.end]
    following = call.ids[:0] if after is None else after.ids[call.end : after.start]
    if len(following):
        at = position(new, following)
        return None if at is None else _changed(call, rest, new[:at], text)
    for size in range(len(rest), 0, -1):
        at = position(new, rest[-size:])
        if at is not None:
            return _changed(call, rest, new[: at + size], text)
    if text is not None and text(new.tolist()).startswith(text(rest.tolist())):
        return "retokenise"
    return "template" if len(rest) == 1 and call.tokens.finish_reason in _ENDED_ITSELF else "retokenise"


def _changed(call: Seen, was: Ids, now: Ids, text: Text | None) -> OpenReason:
    """The reason when `now` stands in the place of the sampled `was`."""
    tail = agreement(was[::-1], now[::-1])
    gone, put = was[: len(was) - tail], now[: len(now) - tail]
    if len(gone) == 0 or (len(gone) == 1 and tail == 0 and call.tokens.finish_reason in _ENDED_ITSELF):
        return "template"
    if text is not None:
        return _changed_text(text(gone.tolist()), text(put.tolist()), tail)
    if len(put):
        return "retokenise"
    return "history_rewritten" if tail > 1 else "parser"


def _changed_text(gone: str, put: str, tail: int) -> OpenReason:
    if gone == put:
        return "retokenise"
    if gone.strip() == put.strip():
        return "parser"
    # Thinking goes from the front of an answer that stays; a parser drops or rewrites what is behind or within.
    return "history_rewritten" if gone.endswith(put) and (tail > 1 or put) else "parser"


def _rest(head: Seen, row: Sequence[Seen], shared: int, calls: Sequence[Seen]) -> OpenReason:
    """The reason when the prompt diverges in what was not sampled, or lacks the sample that it diverges in."""
    new, tokens = head.tokens.prompt_ids[shared:], row[-1].ids
    spoken = [call.order for call in row if call.tokens.role != "summary"]
    for summary in (call for call in calls if call.tokens.role == "summary" and call.order < head.order):
        just_now = summary.tokens.participant == head.tokens.participant and summary.order > max(spoken, default=(-1, ""))
        if just_now or _held(new, summary):
            return "compaction"
    for call in row:
        at = position(new, call.tokens.sampled_ids) if call.start >= shared else None
        if at is not None:
            gone, put = tokens[shared : call.start], new[:at]
            tail = agreement(gone[::-1], put[::-1])
            # One token is a separator; more that are gone were cut.
            return "truncation" if len(gone) - tail > max(1, len(put) - tail) else "template"
    if any(call.end <= shared for call in row):
        return "parallel"
    # Nothing that was sampled is left: the request with something new behind it, or another request.
    return "compaction" if 2 * shared > row[0].start and len(head.tokens.prompt_ids) < len(tokens) else "start"


def _held(new: Ids, summary: Seen) -> bool:
    """Whether the prompt holds a summary, whose last token may be an end of turn that is not repeated."""
    said = summary.tokens.sampled_ids[:-1]
    return len(said) > 0 and position(new, said) is not None


def position(within: Ids, wanted: Ids) -> int | None:
    """Where `wanted` stands in `within` for the first time; None where it does not."""
    data, pattern = np.ascontiguousarray(within, np.int32).tobytes(), np.ascontiguousarray(wanted, np.int32).tobytes()
    at = data.find(pattern)
    while at >= 0 and at % 4:
        at = data.find(pattern, at + 1)
    return None if at < 0 else at // 4
