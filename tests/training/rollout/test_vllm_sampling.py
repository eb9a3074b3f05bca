"""vLLM as an engine to train from, on the one real server of the session."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from ledger.errors import EngineFailed
from training.rollout.engine import Engine, EngineSpec
from training.rollout.engine_refresh import probe_prompt
from training.rollout.sampling import SamplingEngine, TrainerScore
from training.rollout.vllm_sampling import VllmEngine


def torch_score(folder: Path) -> TrainerScore:
    """The log-probabilities that transformers gives for the weights in a folder."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def score(ids: Sequence[int], prompt: int) -> NDArray[np.float64]:
        with torch.no_grad():
            logits = model(torch.tensor([list(ids)])).logits[0].double().log_softmax(-1)
        return np.array([float(logits[at - 1, token]) for at, token in enumerate(ids) if at >= prompt])

    return score


@pytest.mark.slow
def test_engine_and_trainer_agree_before_and_after_a_refresh_and_stale_weights_are_refused(
    vllm_engine: Engine, smollm2_dir: Path, changed_dir: Path
) -> None:
    serving: SamplingEngine = VllmEngine(vllm_engine.log.parent, vllm_engine.spec)
    assert isinstance(serving, VllmEngine)
    first = serving.serve(smollm2_dir, "pretrained", score=torch_score(smollm2_dir), tolerance_nats=1e-2)
    assert first.probe_gap_nats is not None
    assert first.probe_gap_nats < 1e-2
    second = serving.serve(changed_dir, "changed", score=torch_score(changed_dir), tolerance_nats=1e-2)
    assert second.version == "changed"
    assert second.probe_gap_nats is not None
    assert second.probe_gap_nats < 1e-2
    assert second.cache_reset is True
    assert serving.serve(changed_dir, "changed").cache_reset is False
    assert serving.upstream().model_version == "changed"
    assert serving.probe(torch_score(smollm2_dir)) > 0.01
    serving.serve(smollm2_dir, "pretrained")


def test_nothing_is_served_before_the_first_serve(tmp_path: Path) -> None:
    with pytest.raises(EngineFailed, match="serves nothing yet"):
        VllmEngine(tmp_path, EngineSpec(model=tmp_path, served_name="tiny")).upstream()


def test_a_probes_prompt_depends_on_vocabulary_and_length_alone(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 50, "max_position_embeddings": 64}))
    prompt = probe_prompt(tmp_path, 192)
    assert prompt == probe_prompt(tmp_path, 192)
    assert len(prompt) == 64 - 8 - 1
    assert set(prompt) <= set(range(50))


def test_a_policy_without_a_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 50}))
    with pytest.raises(EngineFailed, match="max_position_embeddings None"):
        probe_prompt(tmp_path, 10)
