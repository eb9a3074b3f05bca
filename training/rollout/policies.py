"""Policies: a model or a script behind an endpoint, with how it samples. Publishes model versions to the ledger."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from ledger.blobs import PUBLIC
from ledger.canonical import canonical_bytes
from ledger.events import ModelVersionPublished
from ledger.ledger import LedgerHandle
from training.rollout.pretrained import template_digest, tokenizer_digest, version_digest, weights_digest
from training.worlds.source import Script


@dataclass(frozen=True)
class Policy:
    """Who acts in a rollout.

    Attributes:
        name: short name shown in tables, such as `smollm2` or `oracle`.
        model: model name in requests.
        model_version: the ledger's id of the weights, or of the script's source.
        sampling: request fields: temperature, top_p, max_tokens, tool_choice, ...
        trainable: whether its tokens may be trained on.
        script: for a scripted policy, what it answers in a task, turn by turn.
        stream: whether calls are streamed.
        strict_tools: whether tools are marked as strict, so that an engine constrains calls to their schemas.
    """

    name: str
    model: str
    model_version: str
    sampling: Mapping[str, Any] = field(default_factory=dict)
    trainable: bool = False
    script: Script | None = None
    stream: bool = False
    strict_tools: bool = False


def scripted(ledger: LedgerHandle, name: str, script: Script) -> Policy:
    """A scripted policy, with its source and parameters published as a model version that has no weights and no logprobs."""
    bare, params = (script.func, script.keywords) if isinstance(script, partial) else (script, {})
    source = inspect.getsource(inspect.getmodule(bare) or bare)
    if params:
        source = f"# parameters: {canonical_bytes(params).decode()}\n{source}"
    version = f"scripted-{name}-{sha256(source.encode()).hexdigest()[:12]}"
    blob = ledger.pending(source, media="text/x-python", subject_id=PUBLIC)
    body = ModelVersionPublished(
        model_version=version, name=name, weights_digest=None, tokenizer_digest=None, template_digest=None, source=blob.ref, scripted=True
    )
    ledger.append([ledger.new(body, blob)])
    return Policy(name, f"scripted/{name}", version, script=script)


def version_of(name: str, folder: Path) -> str:
    """The model version that the weights, tokenizer and template in `folder` are."""
    return f"{name}-{version_digest(folder)}"


def published(ledger: LedgerHandle, name: str, folder: Path, *, sampling: Mapping[str, Any], licence: str) -> Policy:
    """A policy with the weights in `folder`, published as the model version that their digests name."""
    version = version_of(name, folder)
    body = ModelVersionPublished(
        model_version=version, name=name, weights_digest=weights_digest(folder), tokenizer_digest=tokenizer_digest(folder),
        template_digest=template_digest(folder), scripted=False, licence=licence,
    )  # fmt: skip
    ledger.append([ledger.new(body)])
    return Policy(name, name, version, sampling=sampling, trainable=True, stream=True)
