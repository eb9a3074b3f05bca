"""Upstreams: the OpenAI-compatible servers that a gateway asks, the engine in this process, and what is known about each."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, get_args

from ledger.canonical import canonical_bytes
from ledger.errors import SettingsError

UpstreamKind = Literal["vllm", "torch", "openai", "scripted"]
Scalar = int | float | str | bool | None
KINDS: tuple[str, ...] = get_args(UpstreamKind)

IDENTIFIER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
TOKENS_MISSING = {"openai": "the provider returns no token ids", "scripted": "scripted policy"}


@dataclass(frozen=True)
class Upstream:
    """One server that samples, or plays a script.

    Attributes:
        base_url: address up to and including `/v1`; `torch://<engine id>` for an engine in this process and
            `scripted://<name>` for scripts in it.
        model_version: ledger id of the model version whose weights sample there.
        kind: vllm and torch return token ids and logprobs; openai and scripted do not.
        api_key: sent as a bearer token, never written anywhere.
        logprobs_mode: what a vllm server runs with, such as `processed_logprobs`; the others have none.
        timeout_s: seconds from the first attempt to connect until the last byte.
        sampling_defaults: what the server uses where a request is silent.
    """

    base_url: str
    model_version: str
    kind: UpstreamKind = "vllm"
    api_key: str | None = field(default=None, repr=False)
    logprobs_mode: str | None = None
    timeout_s: float = 600.0
    sampling_defaults: Mapping[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise SettingsError(f"upstream kind {self.kind!r}; allowed: {', '.join(KINDS)}")
        if self.kind == "torch":
            if not self.base_url.startswith("torch://"):
                raise SettingsError(f"upstream address {self.base_url[:100]!r} of kind 'torch'; allowed: torch://<engine id>")
        elif self.kind == "scripted" and self.base_url.startswith("scripted://"):
            pass
        elif not self.base_url.startswith(("http://", "https://")) or self.base_url.endswith("/") or len(self.base_url) > 300:
            raise SettingsError(f"upstream address {self.base_url[:100]!r}; allowed: http(s)://host:port/v1, without a slash at its end")
        if "@" in self.base_url:
            raise SettingsError("upstream address holds '@'; credentials go into api_key, which is never written anywhere")
        if not IDENTIFIER.fullmatch(self.model_version):
            raise SettingsError(f"upstream model version {self.model_version[:100]!r}; allowed: an id that matches {IDENTIFIER.pattern}")
        canonical_bytes(dict(self.sampling_defaults))
        if self.returns_tokens and not self.logprobs_mode:
            raise SettingsError(f"upstream of kind {self.kind!r} without logprobs_mode; name the --logprobs-mode that the server runs with")
        if not 0.0 < self.timeout_s < math.inf:
            raise SettingsError(f"upstream timeout_s {self.timeout_s}; allowed: a positive number of seconds")

    @property
    def returns_tokens(self) -> bool:
        """Whether its answers hold the real token ids and their log-probabilities."""
        return self.kind in ("vllm", "torch")

    @property
    def error_source(self) -> Literal["engine", "provider"]:
        """Whose fault an error of this server is: the engine that runs beside the gateway, or a provider."""
        return "engine" if self.returns_tokens else "provider"
