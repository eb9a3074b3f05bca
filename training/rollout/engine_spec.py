"""What a local inference server is started with, how it is addressed, and one call to it over loopback."""

import hashlib
import json
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ledger.errors import EngineFailed

_IDENTITY_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json")
# A proxy named in the environment has no business with a loopback address.
_OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@dataclass(frozen=True)
class EngineSpec:
    """Everything that decides what a local vLLM server serves.

    Attributes:
        model: folder in Hugging Face form that holds the weights, the tokenizer and the chat template.
        served_name: model name that requests use.
        version: name of the model version in `model`; the server reports it.
        dtype: arithmetic of the server. float32 agrees with a float32 trainer to 1e-5 nats and is the fastest on CPUs
            without bfloat16 instructions; bfloat16 suits GPUs.
        max_model_len: longest prompt and answer together, in tokens.
        logprobs_mode: processed_logprobs are those of the distribution that was sampled from, raw_logprobs those of the model.
        tool_parser: vLLM's tool call parser; None switches automatic tool calls off.
        kv_cache_gib: memory for keys and values on a CPU, in GiB.
        cpu_ids: logical CPUs of the CPU back end as vLLM writes them, such as `0-1`; None lets the system schedule on all of them.
        block_size: tokens a cache block; prefixes are shared in whole blocks.
        eager: no graph compilation, which makes the start minutes shorter on a CPU.
        more: further command line arguments of vLLM.
    """

    model: Path
    served_name: str
    version: str = "initial"
    dtype: str = "float32"
    max_model_len: int = 8192
    logprobs_mode: str = "processed_logprobs"
    tool_parser: str | None = "hermes"
    kv_cache_gib: int = 1
    cpu_ids: str | None = None
    block_size: int = 32
    eager: bool = True
    more: tuple[str, ...] = ()

    def digest(self) -> str:
        """SHA-256 (hex) of the settings and of the model's configuration, tokenizer and template, but not of its weights.

        Two specs with the same digest can be served by one process after a refresh of weights.
        """
        settings = {name: value for name, value in asdict(self).items() if name not in ("model", "version")}
        present = [name for name in _IDENTITY_FILES if (self.model / name).is_file()]
        files = {name: hashlib.sha256((self.model / name).read_bytes()).hexdigest() for name in present}
        return hashlib.sha256(json.dumps([settings, files], sort_keys=True).encode()).hexdigest()

    def arguments(self, port: int) -> list[str]:
        """The arguments of vLLM's OpenAI server for a server on 127.0.0.1:`port`."""
        chosen = ["--host", "127.0.0.1", "--port", str(port), "--model", str(self.model.resolve()), "--served-model-name", self.served_name]
        chosen += ["--dtype", self.dtype, "--max-model-len", str(self.max_model_len), "--block-size", str(self.block_size)]
        chosen += ["--logprobs-mode", self.logprobs_mode, "--enable-prefix-caching", "--disable-uvicorn-access-log"]
        # A prompt prefilled in pieces rewinds the seeded generator of its request, which a CPU generator cannot do: the server dies.
        chosen += ["--no-enable-chunked-prefill", "--max-num-batched-tokens", str(self.max_model_len)]
        if self.tool_parser is not None:
            chosen += ["--enable-auto-tool-choice", "--tool-call-parser", self.tool_parser]
        if self.eager:
            chosen.append("--enforce-eager")
        return [*chosen, *self.more]


@dataclass(frozen=True)
class Engine:
    """A server that answers: base URL of the OpenAI interface, pid of its process group, what it serves, and its log."""

    base_url: str
    pid: int
    spec: EngineSpec
    log: Path

    @property
    def root_url(self) -> str:
        """The server's address without `/v1`, where its own controls are."""
        return self.base_url.removesuffix("/v1")


def ask(url: str, body: dict[str, Any] | None = None, *, post: bool = False, timeout_s: float = 60.0) -> Any:
    """The decoded JSON answer of the server, or None for an empty answer.

    Args:
        url: address on loopback.
        body: sent as JSON; with a body the request is a POST.
        post: makes a request without a body a POST.
        timeout_s: seconds before the answer is given up.

    Raises:
        EngineFailed: the server is not reachable, or answers with a status other than 2xx.
    """
    data = None if body is None else json.dumps(body).encode()
    method = "POST" if post or body is not None else "GET"
    request = urllib.request.Request(url, data=data, method=method, headers={"Content-Type": "application/json"})
    try:
        with _OPENER.open(request, timeout=timeout_s) as answer:
            text = answer.read()
    except urllib.error.HTTPError as refusal:
        detail = refusal.read().decode(errors="replace")[:500]
        raise EngineFailed(f"{method} {url} was answered with status {refusal.code}: {detail}") from refusal
    except OSError as error:
        raise EngineFailed(f"{method} {url} was not answered: {error}") from error
    return json.loads(text) if text else None


def is_healthy(root_url: str) -> bool:
    """True when the server answers its health check within five seconds."""
    try:
        ask(f"{root_url}/health", timeout_s=5.0)
    except EngineFailed:
        return False
    return True
