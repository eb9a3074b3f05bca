"""The gateway as a command: `python -m training.rollout.gateway`. Serves HTTP until it is told to stop."""

import asyncio
import signal
from typing import Annotated, get_args

import typer
import uvloop

from ledger.connect import connect
from ledger.errors import SettingsError, TallyError
from ledger.settings import Settings
from training.rollout.gateway import Gateway, Upstream
from training.rollout.gateway_upstream import UpstreamKind

KEYS = ("model", "url", "version", "kind", "logprobs_mode", "timeout_s", "api_key_env")


def upstream_of(text: str, environment: dict[str, str]) -> tuple[str, Upstream]:
    """Model name and upstream in `model=…,url=…,version=…[,kind=…][,logprobs_mode=…][,timeout_s=…][,api_key_env=…]`.

    Raises:
        SettingsError: a key is unknown, missing or malformed.
    """
    pairs = [part.partition("=") for part in text.split(",")]
    values = {key.strip(): value.strip() for key, _, value in pairs}
    unknown = sorted(values.keys() - set(KEYS))
    missing = [key for key in KEYS[:3] if not values.get(key)]
    if unknown or missing:
        raise SettingsError(f"upstream {text!r}: unknown {unknown}, missing {missing}; allowed: {', '.join(KEYS)}")
    kinds = [kind for kind in get_args(UpstreamKind) if kind == values.get("kind", "vllm")]
    if not kinds:
        raise SettingsError(f"upstream kind {values['kind']!r}; allowed: {', '.join(get_args(UpstreamKind))}")
    api_key_env = values.get("api_key_env")
    if api_key_env is not None and api_key_env not in environment:
        raise SettingsError(f"upstream {values['model']!r}: environment variable {api_key_env!r} for its key is not set")
    try:
        timeout_s = float(values.get("timeout_s", "600"))
    except ValueError as error:
        raise SettingsError(f"upstream {values['model']!r}: timeout_s {values['timeout_s']!r}; allowed: a number of seconds") from error
    return values["model"], Upstream(
        values["url"].rstrip("/"), values["version"], kinds[0], logprobs_mode=values.get("logprobs_mode"), timeout_s=timeout_s,
        api_key=None if api_key_env is None else environment[api_key_env],
    )  # fmt: skip


async def serve(settings: Settings, upstreams: dict[str, Upstream], *, host: str, port: int) -> None:
    """Serve until SIGINT or SIGTERM; prints the address when it listens.

    Raises:
        LedgerUnavailable, SchemaMismatch: the ledger cannot be opened.
    """
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    with connect(settings) as ledger:
        async with Gateway(ledger, upstreams, host=host, port=port) as gateway:
            print(f"gateway listening on {gateway.url}", flush=True)
            await stop.wait()


def main() -> None:
    """Run the command."""
    typer.run(gateway)


def gateway(
    upstream: Annotated[list[str], typer.Option(help="model=…,url=…/v1,version=…[,kind=vllm|openai|scripted][,logprobs_mode=…]")] = [],  # noqa: B006
    host: Annotated[str, typer.Option(help="address to listen on")] = "127.0.0.1",
    port: Annotated[int | None, typer.Option(help="port; TALLY_GATEWAY_PORT otherwise")] = None,
) -> None:
    """Serve the capture gateway: point a harness at /r/<rollout id>/v1 of its address."""
    import os

    try:
        settings = Settings()
        upstreams = dict(upstream_of(text, dict(os.environ)) for text in upstream)
        uvloop.run(serve(settings, upstreams, host=host, port=settings.gateway_port if port is None else port))
    except TallyError as error:
        typer.echo(f"{type(error).__name__}: {error}", err=True)
        raise typer.Exit(2) from error
