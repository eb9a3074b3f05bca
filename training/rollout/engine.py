"""A local vLLM server with the OpenAI interface: starts, finds again and stops a process, and keeps its state under one folder."""

import fcntl
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ledger.errors import EngineFailed
from training.rollout.engine_process import Identity, end, is_alive, launch, members, read_birth, reap
from training.rollout.engine_refresh import RefreshResult, refresh, served_version
from training.rollout.engine_spec import Engine, EngineSpec, ask, is_healthy

__all__ = ["Engine", "EngineSpec", "EngineStatus", "RefreshResult", "refresh", "served_version", "start", "status", "stop"]

_STATE, _BIRTH, _LOCK, _LOG = "engine.json", "engine.birth", "engine.lock", "engine.log"
_TAIL_LINES = 25
_SAY_EVERY_S = 10.0
_BIRTH_S = 30.0
_UNVERSIONED = "default"


@dataclass(frozen=True)
class EngineStatus:
    """What is known of the server of one folder.

    Attributes:
        state: `stopped`, `starting`, `serving`, `paused`, or `unresponsive` (alive after it had served, but no answer to a health check).
        engine: the server, unless it is stopped.
        version: model version that it serves, when it answers.
    """

    state: str
    engine: Engine | None
    version: str | None


def start(spec: EngineSpec, home: Path, *, say: Callable[[str], None], timeout_s: float = 900.0) -> Engine:
    """The server of this folder, serving the model version of `spec`; reused when one with the same settings is alive.

    A reused server that serves other weights is refreshed; a server with other settings is replaced.

    Args:
        spec: what to serve.
        home: folder of the server's state and log; made when absent. One server a folder.
        say: takes one line of progress.
        timeout_s: longest time from launch to the first healthy answer, in seconds.

    Raises:
        EngineFailed: the model folder is not one, or the server ended or was not healthy in time; the message ends with its log.
    """
    if not (spec.model / "config.json").is_file():
        raise EngineFailed(f"{spec.model} has no config.json; expected a model folder in Hugging Face form")
    home.mkdir(parents=True, exist_ok=True)
    with _locked(home):
        engine = _found(spec, home, say)
        if engine is None:
            engine = _launched(spec, home, say)
        _until_healthy(engine, home, say, timeout_s)
        _serve_version(engine, spec, say)
        return Engine(engine.base_url, engine.pid, spec, engine.log)


def stop(home: Path) -> bool:
    """True when a server of this folder was alive; on return none is.

    Raises:
        EngineFailed: a process survives SIGKILL.
    """
    if not home.is_dir():
        return False
    # Whoever is starting it holds the lock for as long as that takes; it gives up when its server is gone.
    identity = read_birth(home / _BIRTH)
    ended = identity is not None and is_alive(identity) and end(identity)
    with _locked(home):
        return _end(home) or ended


def status(home: Path) -> EngineStatus:
    """What the server of this folder does now; changes nothing."""
    state, identity = _read_state(home), read_birth(home / _BIRTH)
    if state is None or identity is None or not is_alive(identity):
        return EngineStatus("stopped", None, None)
    engine = _engine_of(state, identity, home)
    if not is_healthy(engine.root_url):
        return EngineStatus("unresponsive" if state["ready"] else "starting", engine, None)
    try:
        version = served_version(engine)
        paused = bool(ask(f"{engine.root_url}/is_paused", timeout_s=5.0)["is_paused"])
    except EngineFailed:
        return EngineStatus("unresponsive", engine, None)
    return EngineStatus("paused" if paused else "serving", engine, version)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    with (home / _LOCK).open("a") as lock:
        # The system lets go of the lock when its holder dies, however it dies.
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _found(spec: EngineSpec, home: Path, say: Callable[[str], None]) -> Engine | None:
    """The live server of this folder if it can serve `spec`; any other one is ended."""
    state, identity = _read_state(home), read_birth(home / _BIRTH)
    if state is not None and identity is None:
        # The starter may have died between the launch and the child's first step.
        time.sleep(1.0)
        identity = read_birth(home / _BIRTH)
    if state is not None and identity is not None and is_alive(identity):
        if state["digest"] != spec.digest():
            say(f"replacing the server {identity.pid}, which was started with other settings")
        else:
            engine = _engine_of(state, identity, home)
            if not state["ready"] or any(is_healthy(engine.root_url) for _ in range(3)):
                return engine
            say(f"replacing the server {identity.pid}, which no longer answers")
    _end(home)
    return None


def _launched(spec: EngineSpec, home: Path, say: Callable[[str], None]) -> Engine:
    port = _free_port()
    log, birth = home / _LOG, home / _BIRTH
    birth.unlink(missing_ok=True)
    # Written before the process exists: a starter that dies right after the launch leaves a server that the next one finds.
    _write_state(home, {"port": port, "digest": spec.digest(), "spec": _spec_to_json(spec), "ready": False})
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", *spec.arguments(port)]
    pid = launch(command, environment=_environment(spec, home), log=log, birth=birth)
    say(f"starting vLLM (pid {pid}) for {spec.served_name} on 127.0.0.1:{port}; log in {log}")
    return Engine(f"http://127.0.0.1:{port}/v1", pid, spec, log)


def _until_healthy(engine: Engine, home: Path, say: Callable[[str], None], timeout_s: float) -> None:
    began = said = time.monotonic()
    while not is_healthy(engine.root_url):
        waited_s = time.monotonic() - began
        reap(engine.pid)
        identity = read_birth(home / _BIRTH)
        if waited_s > _BIRTH_S if identity is None else not is_alive(identity):
            _end(home)
            raise EngineFailed(f"the server of {home} ended after {waited_s:.0f} s; its log ends with:\n{_tail(engine.log)}")
        if waited_s > timeout_s:
            _end(home)
            raise EngineFailed(f"the server of {home} was not healthy within {timeout_s:.0f} s; its log ends with:\n{_tail(engine.log)}")
        if time.monotonic() - said > _SAY_EVERY_S:
            said = time.monotonic()
            say(f"vLLM is starting ({waited_s:.0f} s)")
        time.sleep(0.25)
    state = _read_state(home)
    if state is not None and not state["ready"]:
        _write_state(home, {**state, "ready": True})
        say(f"vLLM answers after {time.monotonic() - began:.0f} s")


def _serve_version(engine: Engine, spec: EngineSpec, say: Callable[[str], None]) -> None:
    version = served_version(engine)
    paused = bool(ask(f"{engine.root_url}/is_paused")["is_paused"])
    if not paused and version == _UNVERSIONED and engine.spec.model.resolve() == spec.model.resolve():
        ask(f"{engine.root_url}/update_weight_version", {"new_version": spec.version})
    elif paused or version != spec.version:
        say(f"loading version {spec.version} into the server, which served {version}")
        refresh(engine, spec.model, spec.version)


def _environment(spec: EngineSpec, home: Path) -> dict[str, str]:
    # vLLM imports itself in three processes; without compiled bytecode on disk each of them takes half a minute longer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CACHE_ROOT": str(home.resolve() / "cache"),
        "VLLM_CPU_KVCACHE_SPACE": str(spec.kv_cache_gib),
        "VLLM_CPU_OMP_THREADS_BIND": spec.cpu_ids or "nobind",
        "PYTHONUNBUFFERED": "1",
    }
    if spec.eager:
        # Two small sampling kernels are compiled at the first request whatever vLLM is told; that costs half a minute.
        environment["TORCHDYNAMO_DISABLE"] = "1"
    if spec.cpu_ids is None:
        environment.setdefault("OMP_NUM_THREADS", str(len(os.sched_getaffinity(0))))
        # Threads that spin while they wait stand still together on a machine that others use as well.
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return environment


def _end(home: Path) -> bool:
    identity = read_birth(home / _BIRTH)
    ended = identity is not None and bool(members(identity)) and end(identity)
    (home / _STATE).unlink(missing_ok=True)
    (home / _BIRTH).unlink(missing_ok=True)
    return ended


def _engine_of(state: dict[str, Any], identity: Identity, home: Path) -> Engine:
    spec = state["spec"]
    restored = EngineSpec(**(spec | {"model": Path(spec["model"]), "more": tuple(spec["more"])}))
    return Engine(f"http://127.0.0.1:{state['port']}/v1", identity.pid, restored, home / _LOG)


def _spec_to_json(spec: EngineSpec) -> dict[str, Any]:
    return {**asdict(spec), "model": str(spec.model.resolve()), "more": list(spec.more)}


def _read_state(home: Path) -> dict[str, Any] | None:
    try:
        state: dict[str, Any] = json.loads((home / _STATE).read_text(encoding="utf-8"))
    except (FileNotFoundError, json.JSONDecodeError):
        return None
    return state


def _write_state(home: Path, state: dict[str, Any]) -> None:
    part = home / f"{_STATE}.part"
    part.write_text(json.dumps(state, sort_keys=True, indent=1), encoding="utf-8")
    part.replace(home / _STATE)


def _tail(log: Path) -> str:
    try:
        return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
    except FileNotFoundError:
        return "(no log)"


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
