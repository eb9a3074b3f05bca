"""A verifiers v1 taskset to try the adapter with: write a word backwards."""

import random
from collections.abc import Iterable

import verifiers.v1 as vf

__all__ = ["BackwardsTaskset"]


class WordData(vf.TaskData):
    """A word and what it reads backwards."""

    word: str
    answer: str


class WordTask(vf.Task[WordData]):
    """Full marks for the word backwards; half a mark apart for the right letters in any order."""

    @vf.reward(weight=1.0)
    async def backwards(self, task: WordData, trace: vf.Trace) -> float:
        """Whether the answer is the word backwards."""
        return float((trace.last_reply or "").strip() == task.answer)

    @vf.reward(weight=0.5)
    async def letters(self, task: WordData, trace: vf.Trace) -> float:
        """Whether the answer has the word's letters."""
        return float(sorted((trace.last_reply or "").strip()) == sorted(task.answer))


class BackwardsConfig(vf.TasksetConfig):
    """How many words, and the seed that they are drawn from."""

    words: int = 50
    seed: int = 0
    task: vf.TaskConfig = vf.TaskConfig()


class BackwardsTaskset(vf.Taskset[WordTask, BackwardsConfig]):
    """Random words of five to nine letters."""

    def load(self) -> Iterable[WordTask]:
        """The words."""
        rng = random.Random(self.config.seed)
        for _ in range(self.config.words):
            word = "".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(5, 9)))
            prompt = f"Write the word {word} backwards. Answer with the letters alone."
            yield WordTask(WordData(word=word, answer=word[::-1], prompt=prompt), self.config.task)
