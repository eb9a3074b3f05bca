"""tally propose: drafts shown, written and asked of a model through the ledger."""

import json
from pathlib import Path
from typing import Any

import pytest
import typer

from ledger.errors import NotRecorded, SettingsError
from ledger.settings import Settings
from tests.scripted_model import scripted_server
from training.proposing.command import propose
from training.worlds import AssistantTurn
from training.worlds.ticket_desk.bundles import generate


def run(*arguments: str, settings: Settings | None = None) -> None:
    app = typer.Typer()
    app.command()(propose)
    app(list(arguments), standalone_mode=False, obj=settings or Settings())


def test_drafts_are_listed_with_the_balance_and_written_one_a_line(capsys: Any, tmp_path: Path) -> None:
    out = tmp_path / "drafts.jsonl"
    run("axes_sampler", "-n", "3", "--seed", "7", "--tasks", "1", "--params", '{"axes": {"length": ["one"]}}', "--out", str(out))
    shown = capsys.readouterr().out
    assert shown.startswith("3 of 3 drafts")
    assert "aimed at" in shown
    drafts = [json.loads(line) for line in out.read_text().splitlines()]
    assert [draft["provenance"]["axes"]["length"] for draft in drafts] == ["one"] * 3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("state_first", "--params", "[1]"), "--params is '[1]'; allowed: a JSON object"),
        (("state_first", "--options", "{"), "--options"),
        (("state_first", "--document", "/nowhere/x.md"), "/nowhere/x.md cannot be read"),
        (("state_first", "--world", "moon"), "no world 'moon'"),
    ],
)
def test_what_does_not_fit_is_named(arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(SettingsError) as caught:
        run(*arguments)
    assert message in str(caught.value)


def test_a_model_is_asked_once_and_its_record_answers_the_second_time(ledger_url: str, capsys: Any) -> None:
    settings = Settings(database_url=ledger_url, project="test")
    ticket = sorted(generate(1, seed=7)[0].initial_state["tickets"])[0]
    task = {
        "request": "Please write on the first ticket that it was checked.",
        "calls": [{"name": "update_ticket", "arguments": {"id": ticket, "fields": {"note": "was checked"}}}],
        "conditions": [{"name": "C1", "says": "the note says so", "place": f"/tickets/{ticket}/note", "value": "was checked"}],
    }
    asked = ("asked", "-n", "1", "--seed", "7", "--tasks", "1", "--model", "scripted", "--run", "night")
    with scripted_server() as server:
        server.script(None, [AssistantTurn(json.dumps(task))])
        run(*asked, "--url", server.base_url, "--kind", "scripted", "--json", settings=settings)
    first = json.loads(capsys.readouterr().out)
    run(*asked, "--replay", "--json", settings=settings)
    second = json.loads(capsys.readouterr().out)
    assert first == second
    assert first["drafts"][0]["spec"]["conditions"][0]["place"] == f"/tickets/{ticket}/note"
    with pytest.raises(NotRecorded, match="call 0 of run 'day'"):
        run(*asked[:-1], "day", "--replay", settings=settings)
    with pytest.raises(SettingsError, match="--url is None"):
        run(*asked, settings=settings)
    with pytest.raises(SettingsError, match="environment variable 'NO_SUCH_KEY'"):
        run(*asked, "--url", "http://127.0.0.1:1/v1", "--key-env", "NO_SUCH_KEY", settings=settings)
