"""The leaderboard's own truths are admitted, and their broken neighbours are not."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_gate import Decision, Gates
from audit.bundle_subject import BundleSubject
from audit.severity import Policy, load_policy
from audit.world_gate import WorldGate, check_world
from ledger.bundle import Bundle, BundleDraft
from ledger.errors import DownloadFailed
from ledger.settings import Settings
from training.rollout.harness import tool_loop
from training.verifiers import verifiers
from training.worlds.bfcl import SOURCE, Bfcl
from training.worlds.bfcl.scripts import wrong_turns
from training.worlds.source import TaskQuery

HARNESS = tool_loop()
THREADS = 2
# What decides whether a truth is one; the full gates are the slow test's.
SHORT = ("semantic.oracle_max", "semantic.replayability", "runtime.episode_determinism", "runtime.tool_declaration_accuracy")


class Opened:
    """The first tasks of multi_turn_base, and the gates of their world."""

    def __init__(self, world: Bfcl, number: int, policy: Policy, environment: WorldGate | None = None) -> None:
        self.world, self.drafts = world, SOURCE.tasks(world, TaskQuery(number), Settings())
        assert len(self.drafts) == number
        self.gates = Gates(world, verifiers.bind("bfcl_checker"), HARNESS, policy)
        self.batch = BundleBatch([self.bundle(draft) for draft in self.drafts])
        self.environment = check_world(world, self.drafts, policy) if environment is None else environment

    def bundle(self, draft: BundleDraft) -> Bundle:
        return Bundle(draft, self.world.version, self.gates.verifier.ref.method_id, HARNESS.harness_id)

    def decide(self, draft: BundleDraft) -> Decision:
        return self.gates.decide(self.bundle(draft), self.environment, batch=self.batch)

    def neighbours(self, draft: BundleDraft) -> list[BundleDraft]:
        """The draft with one state-changing call dropped, and with one changed; the declared end state stays that of the truth."""
        return [with_turns(draft, turns) for turns in wrong_turns(draft, self.world).values()]

    def without_a_write(self, draft: BundleDraft) -> list[BundleDraft]:
        """The draft without the last call whose absence shows in the end state; none for a task that only reads."""
        seen = BundleSubject(self.bundle(draft), self.world, self.gates.verifier.call)
        assert seen.reference is not None
        steps = seen.reference.walk.steps
        for at in reversed(seen.writes):
            left = (*steps[:at], *steps[at + 1 :])
            if seen.end_of(left)[2] != seen.reference.material:
                turns = range(len((draft.reference or {})["turns"]))
                calls = [[{"name": s.name, "arguments": s.arguments} for s in left if s.turn == turn] for turn in turns]
                return [with_turns(draft, calls)]
        return []


def with_turns(draft: BundleDraft, turns: Any) -> BundleDraft:
    return replace(draft, reference={**(draft.reference or {}), "turns": turns})


@pytest.fixture(scope="module")
def world() -> Iterator[Bfcl]:
    try:
        made = SOURCE.open(Settings(), {})
    except DownloadFailed as error:
        pytest.skip(f"the leaderboard's wheel cannot be fetched here: {error}")
    assert isinstance(made, Bfcl)
    yield made
    made.close()


def truths_and_neighbours(opened: Opened, near: Callable[[BundleDraft], list[BundleDraft]]) -> tuple[list[Decision], list[Decision]]:
    with ThreadPoolExecutor(THREADS) as pool:
        truths = list(pool.map(opened.decide, opened.drafts))
        broken = list(pool.map(opened.decide, [made for found in pool.map(near, opened.drafts) for made in found]))
    assert {item.bundle.draft.name: item.blocking for item in truths if not item.admitted} == {}
    assert [item.bundle.draft.name for item in broken if item.admitted] == []
    assert all({"semantic.oracle_max", "semantic.replayability"} & set(item.blocking) for item in broken)
    return truths, broken


def test_the_first_truths_are_admitted_and_without_a_write_they_are_not(world: Bfcl) -> None:
    policy = load_policy()
    short = replace(policy, severity={name: policy.severity[name] for name in SHORT}, required=frozenset(SHORT[:1]))
    opened = Opened(world, 20, short, WorldGate(world.version, {}, {}, "0" * 64, short, {}))
    _, broken = truths_and_neighbours(opened, opened.without_a_write)
    # One of the twenty only reads, so it has no such neighbour.
    assert len(broken) == 19


@pytest.mark.slow
def test_all_200_truths_are_admitted_and_their_broken_neighbours_are_not(world: Bfcl) -> None:
    opened = Opened(world, 200, load_policy())
    assert opened.environment.blocking == ()
    truths, broken = truths_and_neighbours(opened, opened.neighbours)
    changing = sum(item.results["semantic.oracle_max"].measured["state_changes"] > 0 for item in truths)
    assert len({item.bundle.draft.name for item in broken}) == changing > 150
    skipped = truths[0].results["verifier.equivalent_paths_accepted"]
    assert (skipped.status, skipped.reason) == ("skip", "the draft declares no equivalent path")
