"""Seeded training histories for tests: groups, verdicts, rewards, batches and updates along a chain or a tree of model versions. Pure."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import sha256

from ledger.events import (
    BatchAssembled,
    BatchRow,
    EventBody,
    GroupDispatched,
    LossWeight,
    ModelVersionPublished,
    Participant,
    RewardDerived,
    RolloutStarted,
    UpdateApplied,
    VerdictGiven,
)


def digest(*parts: object) -> str:
    """A digest that stands for some content."""
    return sha256(repr(parts).encode()).hexdigest()


VERIFIERS = tuple(digest("verifier", n) for n in range(3))
BUNDLES = tuple(digest("bundle", n) for n in range(4))


@dataclass
class Written:
    """What a brute-force reference needs: who judged each reward, what each update weighed, which version came of what."""

    verifier_of: dict[str, str] = field(default_factory=dict)
    weights: dict[str, dict[str, float]] = field(default_factory=dict)
    updates_of: dict[str, list[str]] = field(default_factory=dict)
    parents: dict[str, list[str]] = field(default_factory=dict)
    sampled_by: dict[str, str] = field(default_factory=dict)


class Training:
    """Makes the events of updates one after another.

    Attributes:
        written: what has been made so far.
        versions: model versions in order; the first is the base, which no update made.
    """

    def __init__(self, seed: int, *, groups: int = 2, size: int = 3) -> None:
        self.rng, self.groups, self.size = random.Random(seed), groups, size
        self.written, self.versions, self.rollouts = Written(), ["m0"], 0

    def base(self) -> Iterator[EventBody]:
        """The version that training begins with."""
        yield self._version("m0", None)

    def update(self, *, parents: tuple[str, ...] = (), parts: int = 1) -> Iterator[EventBody]:
        """Events of one update of the newest version or of the given ones, and of all that it was made from.

        Args:
            parents: more than one makes a merge; the first one sampled and was updated.
            parts: of the batch and of the update.
        """
        above = parents or (self.versions[-1],)
        step, before = len(self.versions), above[0]
        after, update_id, batch_id = f"m{step}", f"u{step}", f"b{step}"
        rows: list[tuple[str, str, float]] = []
        for group in range(self.groups):
            for body, row in self._group(f"g{step}.{group}", step, before):
                yield body
                rows += [] if row is None else [row]
        self.written.weights[update_id] = {reward: weight for _, reward, weight in rows}
        self.written.updates_of[after] = [update_id]
        self.written.parents[after] = list(above)
        for part in range(parts):
            mine = rows[part::parts]
            yield BatchAssembled(
                batch_id=batch_id, run_id="run", round=step, part=part, parts=parts,
                rows=[BatchRow(rollout_id=rollout, reward_id=reward, votes=True, trains=weight > 0) for rollout, reward, weight in mine],
            )  # fmt: skip
            yield UpdateApplied(
                update_id=update_id, batch_id=batch_id, run_id="run", step=step, part=part, parts=parts, model_version_before=before,
                model_version_after=after,
                weights=[LossWeight(rollout_id=rollout, reward_id=reward, weight=weight) for rollout, reward, weight in mine],
            )  # fmt: skip
        for parent in above:
            yield self._version(after, parent) if parent == above[0] else UpdateApplied(
                update_id=f"merge{step}.{parent}", batch_id=batch_id, run_id="run", step=step, model_version_before=parent,
                model_version_after=after, weights=[],
            )  # fmt: skip
        self.versions.append(after)

    def _group(self, group_id: str, step: int, version: str) -> Iterator[tuple[EventBody, tuple[str, str, float] | None]]:
        bundle = self.rng.choice(BUNDLES)
        yield GroupDispatched(group_id=group_id, bundle_id=bundle, size=self.size, experiment_id="exp", run_id="run", round=step,
                              policy="p", rollout_kind="ordinary"), None  # fmt: skip
        for slot in range(self.size):
            self.rollouts += 1
            rollout, verdict, reward = (f"{noun}{self.rollouts}" for noun in ("r", "v", "w"))
            verifier, weight = self.rng.choice(VERIFIERS), self.rng.choice((0.0, 0.5, 1.0, self.rng.random()))
            self.written.verifier_of[reward], self.written.sampled_by[reward] = verifier, version
            agent = Participant(name="agent", role="agent", model_version=version, endpoint="e", sampling={}, trainable=True)
            yield RolloutStarted(rollout_id=rollout, group_id=group_id, bundle_id=bundle, slot=slot, attempt=1, rollout_kind="ordinary",
                                 participants=[agent], seed=slot), None  # fmt: skip
            yield VerdictGiven(verdict_id=verdict, rollout_id=rollout, verifier_id=verifier, verifier_kind="program", role="bundle",
                               status="completed", passed=True, conditions=[], side_effect_count=0), None  # fmt: skip
            yield RewardDerived(reward_id=reward, rollout_id=rollout, rule="binary", rule_id=digest("rule"), verdict_ids=[verdict],
                                value=1.0, reason="passed"), (rollout, reward, weight)  # fmt: skip

    def _version(self, version: str, parent: str | None) -> ModelVersionPublished:
        return ModelVersionPublished(
            model_version=version, name="policy", weights_digest=digest(version), tokenizer_digest=None, template_digest=None,
            scripted=False, parent=parent,
        )  # fmt: skip
