"""An experiment over one world from tasks to verdicts, as `tally demo` runs it, without a model."""

from collections.abc import Callable
from typing import Any

import pytest

from ledger import queries
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from training import stages
from training.lab import Lab
from training.rollout.harness_table import HarnessTable
from training.run_config import Collection, RunConfig, TaskSource

Outcomes = dict[str, list[bool | None]]


@pytest.fixture
def outcomes(ledger: LedgerHandle) -> Callable[..., Outcomes]:
    """Runs scripted policies in tasks of a world; gives what the bundle's verifier said of each policy's rollouts, in task order."""

    def run(world: str, policies: tuple[str, ...], *, count: int = 2, seed: int = 7, options: dict[str, Any] | None = None) -> Outcomes:
        config = RunConfig(
            name="t",
            seed=1,
            concurrency=2,
            harness=HarnessTable(calls_per_turn=40),
            tasks=(TaskSource(world=world, count=count, seed=seed, options=options or {}),),
            collect=tuple(Collection(policy=policy) for policy in policies),
        )
        with Lab(config, ledger, Settings()) as lab:
            for stage in (stages.task_bundles, stages.rollouts, stages.verdicts, stages.rewards):
                if stage in (stages.verdicts, stages.rewards):
                    queries.fresh(ledger)
                stage(lab)
        queries.fresh(ledger)
        lines = queries.rollouts(ledger).lines
        assert {line.ended_by for line in lines} == {"finished"}, [line.ended_by for line in lines]
        return {policy: [line.passed for line in lines if line.policy == policy] for policy in policies}

    return run
