"""Real OpenEnv in its own environment: the package's echo template and a seeded server, sessions, typed failures, missing rewards."""

import os
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledger.bundle import BundleDraft
from ledger.errors import BundleError, SettingsError, VenvFailed, WorldFailed
from ledger.settings import Settings
from training.verifiers import JudgeTask, Verdict
from training.verifiers.environment_reward import environment_reward
from training.worlds import Observation, ToolCall
from training.worlds.openenv import REQUIREMENTS, SOURCE, OpenEnv, open_openenv
from training.worlds.package_venv import package_venv
from training.worlds.source import TaskQuery

pytestmark = pytest.mark.slow

STRANGE_SERVER = """
from typing import Any

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State


class Say(Action):
    word: str


class Heard(Observation):
    word: str = ""


class Strange(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Heard:
        self._state = State(episode_id=episode_id, step_count=0)
        return Heard(word=f"seed {seed}")

    def step(self, action: Say, timeout_s: float | None = None, **options: Any) -> Heard:
        if action.word == "crash":
            raise RuntimeError("the environment broke")
        reward = {"true": True, "none": None}.get(action.word, 0.5)
        return Heard(word=action.word, done=action.word == "end", reward=reward)

    @property
    def state(self) -> State:
        return self._state


app = create_app(Strange, Say, Heard, env_name="strange", max_concurrent_envs=4)
"""


@pytest.fixture(scope="module")
def python() -> Path:
    try:
        return package_venv(
            "openenv", REQUIREMENTS, Settings().data_dir / "venvs", imports=["openenv.core.env_server.http_server", "uvicorn"]
        ).python
    except VenvFailed as error:
        pytest.skip(f"openenv cannot be installed here: {error}")


@pytest.fixture(scope="module")
def world(python: Path) -> Iterator[OpenEnv]:
    made = open_openenv(Settings(), {})
    yield made
    made.close()


@pytest.fixture(scope="module")
def strange(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[OpenEnv, dict[str, Any]]]:
    folder = tmp_path_factory.mktemp("strange")
    (folder / "strange_server.py").write_text(STRANGE_SERVER)
    options = {"server": "strange_server:app", "path": str(folder), "prompt": "Say words.", "at_least": 1.0}
    made = open_openenv(Settings(), options)
    yield made, options
    made.close()


def said(world: OpenEnv, draft: BundleDraft, *actions: dict[str, Any]) -> tuple[Any, list[Observation]]:
    state, seen = world.reset(draft, seed=0), []
    for action in actions:
        state, observation = world.call(state, ToolCall("step", action))
        seen.append(observation)
    return state, seen


def judged(world: OpenEnv, draft: BundleDraft, *actions: dict[str, Any]) -> Verdict:
    return environment_reward(None, world.view(said(world, draft, *actions)[0]), (), JudgeTask(draft, world.material))


def test_tools_are_the_fields_of_the_environments_action_and_tasks_show_the_first_observation(world: OpenEnv) -> None:
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 7), Settings())
    parameters = world.tools(draft, turn=0)[0]["function"]["parameters"]
    assert list(parameters["properties"]) == ["number"]
    assert parameters["required"] == ["number"]
    assert "I think of a number" in draft.request["turns"][0][0]["content"]
    assert draft == SOURCE.tasks(world, TaskQuery(1, 7), Settings())[0]


def test_an_action_that_is_not_of_the_schema_is_the_policys_mistake_and_changes_nothing(world: OpenEnv) -> None:
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 7), Settings())
    for action in ({"number": 100}, {"number": "many"}, {}, {"number": 1, "force": True}, {"number": 1, "metadata": {}}):
        state, (observation,) = said(world, draft, action)
        assert observation.error_class == "invalid_arguments", action
        assert world.digest(state) == world.digest(world.reset(draft, seed=0))


def test_a_session_replays_on_another_server_and_forks_go_their_own_ways(world: OpenEnv) -> None:
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 7), Settings())
    state, _ = said(world, draft, {"number": 50})
    other = open_openenv(Settings(), {})
    left, right = other.fork(world.snapshot(state), 2)
    assert other.call(left, ToolCall("step", {"number": 25}))[1].content.startswith('{"metadata": {}, "says": "higher"}')
    found, _ = other.call(right, ToolCall("step", {"number": 41}))
    assert other.view(found)["episode"]["terminated"]
    assert other.call(found, ToolCall("step", {"number": 41}))[1].error_class == "tool_error"
    other.close()


def test_an_environment_that_breaks_is_a_failed_world_and_a_reward_may_be_missing_or_true(strange: tuple[OpenEnv, dict[str, Any]]) -> None:
    world, options = strange
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 3, options), Settings())
    with pytest.raises(WorldFailed, match="the environment broke"):
        said(world, draft, {"word": "crash"})
    assert judged(world, draft, {"word": "true"}, {"word": "end"}).passed is True
    assert judged(world, draft, {"word": "none"}, {"word": "end"}).passed is None
    assert judged(world, draft, {"word": "end"}).passed is False


def test_references_are_tried_before_they_are_believed(strange: tuple[OpenEnv, dict[str, Any]]) -> None:
    world, options = strange
    good = {**options, "references": {"3": [{"word": "true"}, {"word": "end"}]}}
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 3, good), Settings())
    assert draft.reference is not None
    with pytest.raises(BundleError, match=r"the reference of seed 3 in Strange has a return of 0\.5; needed: 1"):
        SOURCE.tasks(world, TaskQuery(1, 3, {**options, "references": {"3": [{"word": "end"}]}}), Settings())


def test_the_template_of_the_package_runs_as_a_world(python: Path, tmp_path: Path) -> None:
    made = subprocess.run(
        [python, "-m", "openenv.cli", "init", "echo_env", "--output-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path), "PATH": f"{python.parent}:{os.environ['PATH']}"},
    )
    folder = tmp_path / "echo_env"
    assert (folder / "server" / "app.py").exists(), made.stderr + made.stdout
    options = {"server": "server.app:app", "path": str(folder), "prompt": "Say something long.", "at_least": 1.0, "ends": "none"}
    world = open_openenv(Settings(), options)
    (draft,) = SOURCE.tasks(world, TaskQuery(1, 0, options), Settings())
    assert judged(world, draft, {"message": "0123456789"}).passed is True
    assert judged(world, draft, {"message": "short"}).passed is False
    world.close()


def test_a_running_server_is_reached_by_its_url(python: Path, tmp_path: Path) -> None:
    (tmp_path / "strange_server.py").write_text(STRANGE_SERVER)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        command = [python, "-m", "uvicorn", "strange_server:app", "--fd", str(listening.fileno())]
        server = subprocess.Popen(command, cwd=tmp_path, pass_fds=[listening.fileno()], stderr=subprocess.DEVNULL)
    try:
        # The socket listens before the server does, so that this waits for the server and not for a port.
        urllib.request.urlopen(f"{url}/health", timeout=240).close()
        options = {"base_url": url, "prompt": "Say words.", "at_least": 0.5}
        world = open_openenv(Settings(), options)
        (draft,) = SOURCE.tasks(world, TaskQuery(1, 3, options), Settings())
        assert judged(world, draft, {"word": "end"}).passed is True
        world.close()
    finally:
        server.kill()
        server.wait()


def test_what_cannot_be_opened_or_asked_is_refused(world: OpenEnv, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="takes base_url or server with path"):
        open_openenv(Settings(), {"base_url": "http://127.0.0.1:1", "server": "a:app"})
    with pytest.raises(SettingsError, match="option path of world 'openenv' is None"):
        open_openenv(Settings(), {"server": "a:app"})
    with pytest.raises(SettingsError, match="takes no option 'promt'"):
        SOURCE.tasks(world, TaskQuery(1, 3, {"promt": "x"}), Settings())
    absent = open_openenv(Settings(), {"server": "absent:app", "path": str(tmp_path), "prompt": "x", "at_least": 1})
    with pytest.raises(WorldFailed, match="No module named 'absent'"):
        absent.ask("about")
    absent.close()


def test_an_experiment_of_scripted_policies_is_judged_by_the_servers_reward(outcomes: Callable[..., Any], world: OpenEnv) -> None:
    seen = outcomes("openenv", ("oracle", "drops_last_call", "gives_up"))
    assert seen == {"oracle": [True, True], "drops_last_call": [False, False], "gives_up": [False, False]}
