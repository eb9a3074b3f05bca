"""Two processes over gloo: the gradient of one, the same model on both, and refusals that reach both."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.optimise.small_batches import apart, flat, policy
from tests.training.optimise.two_processes import CONFIG, MICRO, batch
from training.optimise.distributed import Ranks, batch_digest, joined, model_digest, part, sharded_gradient
from training.optimise.gradient import update_gradient
from training.optimise.optimiser import AdamW

ROOT = Path(__file__).resolve().parents[3]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    target = tmp_path_factory.mktemp("processes")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "tests.training.optimise.two_processes",
        str(target),
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [torch.load(target / f"rank{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("divided", [False, True], ids=["whole", "sharded"])
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_two_processes_have_the_gradient_of_one_and_end_with_one_model(
    found: list[dict[str, Any]], dtype: torch.dtype, divided: bool
) -> None:
    model = policy(0, dtype)
    alone = update_gradient(model, batch(), micro_tokens=MICRO, entropy=True)
    expected = flat(model)
    optimiser = AdamW(model, CONFIG, total_steps=2)
    optimiser.step()
    both = [each[f"{dtype} {divided}"] for each in found]
    assert both[0]["digest"] == both[1]["digest"] and both[0]["resumed"] and both[1]["resumed"]
    for told in both:
        assert apart(told["gradient"], expected) <= TOLERANCE[dtype]
        for name, weight in model.state_dict().items():
            torch.testing.assert_close(told["weights"][name], weight, rtol=100 * TOLERANCE[dtype], atol=100 * TOLERANCE[dtype])
        for name, value in alone.as_counters().items():
            if name not in ("micro_batches", "padding", "micro_batches_over_budget"):
                assert told["measured"][name] == pytest.approx(value, rel=TOLERANCE[dtype], abs=1e-6), name


@pytest.mark.slow
def test_different_batches_are_refused_on_every_process(found: list[dict[str, Any]]) -> None:
    for each in found:
        assert "different batches" in each["refusals"]["different"]


@pytest.mark.slow
def test_what_one_process_refuses_all_refuse_and_no_gradient_is_left(found: list[dict[str, Any]]) -> None:
    assert len({each["refusals"]["broken"] for each in found}) == 1
    for each in found:
        assert "process" in each["refusals"]["broken"] and "advantage" in each["refusals"]["broken"]
        assert not each["refusals"]["broken_left"]


def test_a_process_started_otherwise_is_alone() -> None:
    with joined() as ranks:
        assert ranks == Ranks(0, 1)
    one, other = policy(), policy()
    alone = sharded_gradient(one, batch(), ranks, micro_tokens=MICRO)
    assert alone == update_gradient(other, batch(), micro_tokens=MICRO)
    assert torch.equal(flat(one), flat(other))


def test_the_parts_of_a_batch_have_its_weights() -> None:
    whole = batch()
    halves = [part(whole, rows) for rows in (torch.tensor([0, 3, 6]).numpy(), torch.tensor([1, 2, 4, 5]).numpy())]
    assert sum(half.terms[0].weight_T.sum() for half in halves) == pytest.approx(whole.terms[0].weight_T.sum())
    assert halves[0].rollout_id_Q == ("r0", "r3", "r6") and halves[0].row_T.max() == 2
    grads = []
    for half in halves:
        model = policy()
        update_gradient(model, half, micro_tokens=MICRO)
        grads.append(flat(model))
    model = policy()
    update_gradient(model, whole, micro_tokens=MICRO)
    assert apart(grads[0] + grads[1], flat(model)) < 1e-9


def test_digests_see_every_change() -> None:
    assert batch_digest(batch()) == batch_digest(batch()) != batch_digest(batch(2))
    assert model_digest(policy()) == model_digest(policy()) != model_digest(policy(1))
