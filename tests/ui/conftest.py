"""Fixtures of the pages' tests: a small desk history in a database of its own, and pages opened on a database."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from ledger.ledger import LedgerHandle, open_ledger
from tests.builders import SAMPLED, DeskHistory, small_tokenizer
from tests.conftest import Cluster
from training.worlds import AssistantTurn
from ui import data

APP = Path(__file__).parents[2] / "ui" / "app.py"
FOREIGN = "<script>alert('x')</script> **bold** [link](http://evil.example) \u202e\x1b[31m"


@dataclass(frozen=True)
class Site:
    """A database that pages can be opened on, with the ids of what is in it."""

    url: str
    data_dir: Path
    ledger: LedgerHandle
    rollouts: dict[str, str]


def _fill(ledger: LedgerHandle, data_dir: Path) -> dict[str, str]:
    corpus = ['{"name": "send_email", "arguments": {"to": "ann@desk.example"}} <tool_call> </tool_call> query_tickets last_reminded_at'] * 3
    history = DeskHistory(ledger, tasks=2, model=small_tokenizer(data_dir / "models" / "tiny", corpus))
    foreign = [AssistantTurn(FOREIGN, (("query_tickets", '{"priority": "P1"'),)), AssistantTurn(FOREIGN + "x" * 5000)]
    made: dict[str, str] = {}
    sampled = history.group(0, SAMPLED, size=3)
    made["solved"] = history.rollout(sampled, 0, SAMPLED, "oracle")
    made["sibling"] = history.rollout(sampled, 0, SAMPLED, "gives_up", slot=1)
    made["disputed"] = history.rollout(history.group(0, "ignores_cooldown"), 0, "ignores_cooldown", "ignores_cooldown")
    made["double"] = history.rollout(history.group(1, "ignores_cooldown"), 1, "ignores_cooldown", "ignores_cooldown")
    made["broken"] = history.rollout(history.group(1, "broken"), 1, "broken", "oracle", fault="world_error")
    made["foreign"] = history.rollout(history.group(1, "foreign"), 1, "foreign", foreign)
    history.judge_and_reward()
    made["dangling"] = history.rollout(history.group(1, "dangling"), 1, "dangling", "oracle", answered=False)
    made["unattributed"] = history.unattributed()
    return made


@pytest.fixture(scope="session")
def filled(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path, dict[str, str]]]:
    """The URL and the folder of what every module begins with, and the rollouts in it; nobody writes to it."""
    url, data_dir = cluster.migrated_database(), tmp_path_factory.mktemp("filled")
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        rollouts = _fill(ledger, data_dir)
    yield url, data_dir, rollouts
    cluster.drop(url)


@pytest.fixture(scope="module")
def site(cluster: Cluster, filled: tuple[str, Path, dict[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A filled database; tests may add reviews to it, each to a rollout of its own."""
    like, folder, rollouts = filled
    url, data_dir = cluster.migrated_database(like), tmp_path_factory.mktemp("site") / "data"
    shutil.copytree(folder, data_dir)
    with open_ledger(url, project="test", actor_id="tester") as ledger:
        yield Site(url, data_dir, ledger, rollouts)
    cluster.drop(url)


Open = Callable[..., AppTest]


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Open]:
    """Opens a page of the real app on a database: `page(url, "trace", reward=id)`; the app's ledger is closed afterwards."""
    before = {name: os.environ.get(name) for name in ("TALLY_DATABASE_URL", "TALLY_DATA_DIR", "TALLY_PROJECT")}

    def open_page(url: str, name: str = "rewards", *, data_dir: Path = tmp_path, **query: str) -> AppTest:
        os.environ.update({"TALLY_DATABASE_URL": url, "TALLY_DATA_DIR": str(data_dir), "TALLY_PROJECT": "test"})
        app = AppTest.from_file(str(APP), default_timeout=120).run()
        if name != "rewards":
            app.switch_page(f"pages/{name}.py")
            for key, value in query.items():
                app.query_params[key] = value
            app.run()
        return app

    yield open_page
    data.forget()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def html_of(app: AppTest) -> str:
    """All HTML that a page shows but for its style sheet."""
    bodies = [str(getattr(item, "value", "")) for item in app.get("html")]
    return "\n".join(body for body in bodies if not body.startswith("<style>"))
