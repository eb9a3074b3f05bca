"""Where each open rollout's next prompt continues an earlier one, in bounded memory. Pure."""

from collections import OrderedDict

import numpy as np

from ledger.token_calls import IDS
from ledger.token_link import Link, Linker

KEPT_TOKENS = 2**24
"""Of all rollouts together, at up to 8 bytes a token."""


class Linkers:
    """A linker a rollout, made with its first call; those used longest ago go when there are too many tokens.

    A call of a rollout whose linker is gone has no parent until it is packed: it costs room for a while, and nothing else.

    Attributes:
        tokens: held now.
        dropped: linkers that were let go for want of room.
    """

    def __init__(self, kept_tokens: int = KEPT_TOKENS) -> None:
        self.kept_tokens = kept_tokens
        self.tokens = 0
        self.dropped = 0
        self._linkers: OrderedDict[str, Linker] = OrderedDict()

    def find(self, rollout_id: str, prompt: bytes | None) -> Link | None:
        """What a prompt shares with the rollout's earlier calls; None when there is no prompt, or none of those is known."""
        linker = self._linkers.get(rollout_id)
        if linker is None or prompt is None:
            return None
        return linker.find(np.frombuffer(prompt, IDS))

    def add(self, rollout_id: str, event_id: str, prompt: bytes | None, sampled: bytes | None) -> None:
        """Let later prompts continue a call, which is durable."""
        if prompt is None:
            return
        linker = self._linkers.setdefault(rollout_id, Linker())
        self._linkers.move_to_end(rollout_id)
        before = linker.tokens
        linker.add(event_id, np.frombuffer(prompt, IDS), None if sampled is None else np.frombuffer(sampled, IDS))
        self.tokens += linker.tokens - before
        while self.tokens > self.kept_tokens:
            _, oldest = self._linkers.popitem(last=False)
            self.tokens -= oldest.tokens
            self.dropped += 1

    def drop(self, rollout_id: str) -> None:
        """Forget a rollout that has ended."""
        linker = self._linkers.pop(rollout_id, None)
        if linker is not None:
            self.tokens -= linker.tokens
