"""The leaderboard's own truths are admitted, and their broken neighbours are not."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from audit.bundle_batch import BundleBatch
from audit.bundle_gate import Decision, Gates
from audit.severity import load_policy
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


class Opened:
    """The first tasks of multi_turn_base, and the gates of their world."""

    def __init__(self, world: Bfcl, drafts: Sequence[BundleDraft], verifier: str, **thresholds: float) -> None:
        policy = load_policy()
        self.world, self.drafts = world, drafts
        self.gates = Gates(world, verifiers.bind(verifier), HARNESS, replace(policy, thresholds={**policy.thresholds, **thresholds}))
        self.batch = BundleBatch([self.bundle(draft) for draft in drafts])
        self.environment: WorldGate = check_world(world, drafts, self.gates.policy)

    def bundle(self, draft: BundleDraft) -> Bundle:
        return Bundle(draft, self.world.version, self.gates.verifier.ref.method_id, HARNESS.harness_id)

    def decide(self, draft: BundleDraft) -> Decision:
        return self.gates.decide(self.bundle(draft), self.environment, batch=self.batch)

    def neighbours(self, draft: BundleDraft) -> dict[str, BundleDraft]:
        """The draft with one state-changing call dropped, and with one changed; the declared end state stays that of the truth."""
        made = wrong_turns(draft, self.world)
        return {label: replace(draft, reference={**(draft.reference or {}), "turns": turns}) for label, turns in made.items()}


@pytest.fixture(scope="module")
def world() -> Iterator[Bfcl]:
    try:
        made = SOURCE.open(Settings(), {})
    except DownloadFailed as error:
        pytest.skip(f"the leaderboard's wheel cannot be fetched here: {error}")
    assert isinstance(made, Bfcl)
    yield made
    made.close()


def truths_and_neighbours(opened: Opened, number: int) -> None:
    assert opened.environment.blocking == ()
    drafts = opened.drafts[:number]
    with ThreadPoolExecutor(THREADS) as pool:
        truths = list(pool.map(opened.decide, drafts))
        assert {item.bundle.draft.name: item.blocking for item in truths if not item.admitted} == {}
        near = [made for found in pool.map(opened.neighbours, drafts) for made in found.values()]
        broken = list(pool.map(opened.decide, near))
    assert len(truths) == number and len(broken) >= number
    assert [item.bundle.draft.name for item in broken if item.admitted] == []
    assert all({"semantic.oracle_max", "semantic.replayability"} & set(item.blocking) for item in broken)
    skipped = truths[0].results["verifier.equivalent_paths_accepted"]
    assert (skipped.status, skipped.reason) == ("skip", "the draft declares no equivalent path")


def test_the_first_truths_are_admitted_and_their_broken_neighbours_are_not(world: Bfcl) -> None:
    drafts = SOURCE.tasks(world, TaskQuery(20), Settings())
    few = {"exercise_rounds_per_tool": 4, "exercise_rounds": 20, "verifier_runs": 2, "mutants_per_kind": 1, "exercise_tasks": 1}
    # The state difference judges here: the official checker replays both sides in a process of its own for each verdict.
    truths_and_neighbours(Opened(world, drafts, "end_state", **few), 20)


@pytest.mark.slow
def test_all_200_truths_are_admitted_and_their_broken_neighbours_are_not(world: Bfcl) -> None:
    drafts = SOURCE.tasks(world, TaskQuery(200), Settings())
    assert len(drafts) == 200
    truths_and_neighbours(Opened(world, drafts, "bfcl_checker"), 200)
