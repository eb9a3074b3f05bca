"""Conversations in tokens for tests of rows: a tiny chat template, and the nine shapes that a rollout's calls take."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from training.rows import SampledTokens

END, NEWLINE, SYSTEM, USER, ASSISTANT, TOOL, THINK, THOUGHT = 2, 3, 4, 5, 6, 7, 8, 9
HEAD = [SYSTEM, 20, 21, 22, END, NEWLINE, USER, 30, 31, 32, 33, END, NEWLINE]
TURN = [ASSISTANT, NEWLINE]


def ids(values: Sequence[int]) -> "np.ndarray":
    return np.array(values, dtype=np.int32)


@dataclass
class Calls:
    """Model calls one after another, as an engine records them.

    Attributes:
        made: the calls so far, in dispatch order.
    """

    made: list[SampledTokens] = field(default_factory=list)

    def sample(self, prompt: Sequence[int], sampled: Sequence[int], *, participant: str = "agent", **more: object) -> list[int]:
        """The prompt and the sample together, as one more call."""
        n = len(self.made)
        call = SampledTokens(
            call_id=f"c{n}", index=n, participant=participant, role="agent", prompt_ids=ids(prompt), sampled_ids=ids(sampled),
            logprobs=-np.arange(1, len(sampled) + 1, dtype=np.float32) / 8, trainable=participant == "agent", finish_reason="stop",
        )  # fmt: skip
        self.made.append(replace(call, **more))  # type: ignore[arg-type]
        return [*prompt, *sampled]

    def turn(self, before: Sequence[int], word: int, *, size: int = 4, **more: object) -> list[int]:
        """The history after an assistant's turn: what the template adds, then `size` sampled tokens and the end of the turn."""
        return self.sample([*before, *TURN], [*range(word, word + size), END], **more)  # type: ignore[arg-type]


def tool(word: int, *, size: int = 3) -> list[int]:
    """A tool's answer, with the line break that the template puts behind the turn before it."""
    return [NEWLINE, TOOL, *range(word, word + size), END, NEWLINE]


def append_only(turns: int = 3, *, calls: Calls | None = None) -> list[SampledTokens]:
    """Each prompt is all that stood before with something new behind it."""
    made = calls or Calls()
    history = list(HEAD)
    for n in range(turns):
        history = [*made.turn(history, 100 + 10 * n), *tool(500 + 10 * n)]
    return made.made


def compaction() -> list[SampledTokens]:
    """Two turns, a summary call of their own, then the request with the summary in the place of the turns, and one turn more on it."""
    made = Calls()
    history = [*made.turn(HEAD, 100), *tool(500)]
    history = [*made.turn(history, 110), *tool(510)]
    made.sample([*history, USER, 40, END, NEWLINE, *TURN], [300, 301, 302, END], role="summary")
    history = [*made.turn([*HEAD, USER, 300, 301, 302, END, NEWLINE], 120), *tool(520)]
    made.turn(history, 130)
    return made.made


def thinking_stripped() -> list[SampledTokens]:
    """The template leaves out earlier thinking: user, assistant(think, answer), user."""
    made = Calls()
    made.sample([*HEAD, *TURN], [THINK, 200, 201, 202, THOUGHT, 100, 101, 102, END])
    made.turn([*HEAD, *TURN, 100, 101, 102, END, *tool(500)], 110)
    return made.made


def sub_agent() -> list[SampledTokens]:
    """A turn, a helper's own conversation of two turns, and the main conversation again."""
    made = Calls()
    history = made.turn(HEAD, 100)
    inner = [*made.turn([SYSTEM, 60, 61, END, NEWLINE, USER, 62, END, NEWLINE], 200, participant="searcher"), *tool(600)]
    made.turn(inner, 210, participant="searcher")
    made.turn([*history, *tool(500)], 110)
    return made.made


def title_first() -> list[SampledTokens]:
    """A call with another prompt before the main conversation."""
    made = Calls()
    made.turn([SYSTEM, 70, 71, END, NEWLINE, USER, 30, 31, 32, 33, END, NEWLINE], 300)
    return append_only(2, calls=made)


def parallel() -> list[SampledTokens]:
    """Two calls with one prompt in the middle of a conversation, which goes on from the second."""
    made = Calls()
    history = [*made.turn(HEAD, 100), *tool(500)]
    made.turn(history, 110)
    history = [*made.turn(history, 120), *tool(510)]
    made.turn(history, 130)
    return made.made


def several_samples() -> list[SampledTokens]:
    """n = 3: one prompt, three samples."""
    made = Calls()
    for word in (100, 110, 120):
        made.turn(HEAD, word)
    return made.made


def retry() -> list[SampledTokens]:
    """A call whose answer came too late, its retry, and the conversation going on from the retry."""
    made = Calls()
    made.turn(HEAD, 100)
    history = [*made.turn(HEAD, 110, retry_of="c0"), *tool(500)]
    made.turn(history, 120)
    return made.made


def retokenised_tail() -> list[SampledTokens]:
    """Encoding the decoded sample gives one token in the place of its last two before the end of the turn."""
    made = Calls()
    made.sample([*HEAD, *TURN], [100, 101, 102, 103, END])
    made.turn([*HEAD, *TURN, 100, 101, 199, END, *tool(500)], 110)
    return made.made


SHAPES = {
    "append-only": append_only, "compaction": compaction, "thinking stripped": thinking_stripped, "sub-agent": sub_agent,
    "title call first": title_first, "parallel calls": parallel, "n > 1": several_samples, "retry": retry,
    "re-tokenised tail": retokenised_tail,
}  # fmt: skip
