"""Which earlier call of a stream a new prompt continues: a radix tree over token sequences that holds each shared token once. Pure."""

from dataclasses import dataclass, field

import numpy as np

from ledger.token_calls import IDS, Ids


@dataclass(frozen=True, slots=True, eq=False)
class Link:
    """A prompt as the first `shared` tokens of the parent's prompt and completion, then `suffix`; no parent when nothing is shared."""

    parent: str | None
    shared: int
    suffix: Ids


@dataclass(slots=True, eq=False)
class _Node:
    """A run of tokens without a fork: the first `size` of `buffer`; `latest` is the last call whose sequence passes through all of it."""

    buffer: Ids
    size: int
    latest: str | None
    children: dict[int, "_Node"] = field(default_factory=dict)

    def extend(self, tokens: Ids) -> None:
        """Append tokens; the buffer doubles, so a chain of calls costs each token one copy on average."""
        needed = self.size + len(tokens)
        if needed > len(self.buffer):
            grown = np.empty(max(needed, 2 * len(self.buffer)), IDS)
            grown[: self.size] = self.buffer[: self.size]
            self.buffer = grown
        self.buffer[self.size : needed] = tokens
        self.size = needed

    def split(self, at: int) -> None:
        """Cut the run at `at`; what follows becomes the only child."""
        rest = self.buffer[at : self.size].copy()
        self.children = {int(rest[0]): _Node(rest, len(rest), self.latest, self.children)}
        self.buffer, self.size = self.buffer[:at].copy(), at


class Linker:
    """The known calls of one stream. `find` asks, `add` makes a call known; so a call that was not stored never becomes a parent.

    Attributes:
        tokens: how many it holds, each shared one once; it takes up to 8 bytes a token.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._root = _Node(np.empty(0, IDS), 0, None)

    def find(self, prompt: Ids) -> Link:
        """The longest common prefix with any known prompt and completion; among equals the call that was added last is the parent."""
        path, shared = self._walk(prompt)
        return Link(path[-1][0].latest if shared else None, shared, prompt[shared:])

    def add(self, event_id: str, prompt: Ids, sampled: Ids | None) -> None:
        """Make a call known, so that later prompts may continue it."""
        sequence = prompt if sampled is None else np.concatenate([prompt, sampled])
        path, shared = self._walk(sequence)
        node, matched = path[-1]
        if matched < node.size:
            node.split(matched)
        rest = sequence[shared:]
        self.tokens += len(rest)
        if len(rest) and (node.children or node is self._root):
            node.children[int(rest[0])] = _Node(rest.copy(), len(rest), event_id)
        elif len(rest):
            node.extend(rest)
        for passed, _ in path[1:]:
            passed.latest = event_id

    def _walk(self, sequence: Ids) -> tuple[list[tuple[_Node, int]], int]:
        """The nodes from the root along `sequence`, each with the number of its tokens that agree, and the length of the agreement."""
        path, position = [(self._root, 0)], 0
        while position < len(sequence):
            node = path[-1][0].children.get(int(sequence[position]))
            if node is None:
                break
            agreed = _agreement(node.buffer[: node.size], sequence[position:])
            path.append((node, agreed))
            position += agreed
            if agreed < node.size:
                break
        return path, position


def _agreement(left: Ids, right: Ids) -> int:
    """Length of the longest common prefix."""
    size = min(len(left), len(right))
    same = left[:size] == right[:size]
    return size if same.all() else int(same.argmin())
