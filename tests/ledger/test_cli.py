"""The command line: one clear line for misuse, whole JSON on request, and no terminal control from foreign text."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from ledger.cli import run
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from ledger.terminal import plain


def at(ledger: LedgerHandle) -> Settings:
    return Settings(
        data_dir=Path(tempfile.gettempdir()) / ledger.ledger_id, database_url=ledger.url, project=ledger.project, actor="tester"
    )


def test_trace_shows_the_chain_on_one_screen(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["trace", "reward"], settings=at(ledger)) == 0
    shown = capsys.readouterr().out
    for expected in ("1  all conditions passed", "succeeded", "own_checker", "5 6 7", "send_email", '{"to": "ann"}', "the mail went out"):
        assert expected in shown
    assert "DOES NOT FIT" not in shown
    assert len(shown.splitlines()) < 50


def test_foreign_text_neither_controls_the_terminal_nor_is_read_as_markup(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    run(["trace", "reward-a"], settings=at(ledger))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "I mail \\x1b[2J[red]Ann[/red]" in shown
    assert plain("a\x00b\x1b[2J\u202e\u2028\x9b\ud800\n") == "a\\x00b\\x1b[2J\\u202e\\u2028\\x9b\\ud800\\n"
    assert plain("[bold]x[/bold]") == "[bold]x[/bold]"
    assert plain("abcdef", limit=4) == "abc…"


def test_trace_json_holds_everything(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["trace", "rollout-a", "--json"], settings=at(ledger)) == 0
    value = json.loads(capsys.readouterr().out)
    assert value["calls"][0]["sampled_ids"] == [5, 6, 7]
    assert value["calls"][0]["request"]["messages"][0]["content"] == "mail [bold]Ann[/bold] \x1b[31m"
    assert (value["intact"], value["node"], value["tools"][0]["state_after"]) == (True, "rollout-rollout-a", "a" * 64)


def test_lists_are_filtered_and_their_json_is_one_object_a_line(
    ledger: LedgerHandle, history: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    history.task()
    for slot, passed in enumerate((True, False)):
        history.start(f"r{slot}", slot=slot)
        history.end(f"r{slot}", [])
        history.reward(f"r{slot}", f"w{slot}", history.verdict(f"r{slot}", f"v{slot}", passed), float(passed))
    assert run(["rollouts", "--outcome", "task_failed", "--json"], settings=at(ledger)) == 0
    assert [json.loads(line)["rollout_id"] for line in capsys.readouterr().out.splitlines()] == ["r1"]
    assert run(["rewards", "--policy", "smol"], settings=at(ledger)) == 0
    assert "2 of 2 rewards" in capsys.readouterr().out
    assert run(["events", "--kind", "RewardDerived", "--json", "--limit", "1"], settings=at(ledger)) == 0
    assert json.loads(capsys.readouterr().out)["body"]["reward_id"] == "w1"
    assert run(["outcomes"], settings=at(ledger)) == 0
    assert "1/2 = 0.500" in capsys.readouterr().out
    assert run(["disagreements", "--open"], settings=at(ledger)) == 0
    assert "0 of 0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["trace", "nothing"], "UnknownId: no reward or rollout whose id begins with 'nothing'"),
        (["rollouts", "--outcome", "great"], "UnknownId: no outcome 'great'; there are running, succeeded"),
        (["events", "--kind", "Fish"], "UnknownEventKind: event kind 'Fish' is not known"),
        (["outcomes", "--by", "colour"], "UnknownId: outcomes cannot be grouped by 'colour'"),
        (["db", "start"], "SettingsError: TALLY_DATABASE_URL names a server that is not ours"),
    ],
)
def test_misuse_is_one_line_and_exit_code_2(
    ledger: LedgerHandle, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert run(arguments, settings=at(ledger)) == 2
    printed = capsys.readouterr()
    assert (printed.out, printed.err.count("\n")) == ("", 1)
    assert said in printed.err


def test_unknown_commands_and_options_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["fish"]) == 2
    assert run(["events", "--limit", "many"]) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_verify_says_intact_or_names_the_first_event(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["verify"], settings=at(ledger)) == 0
    assert "intact: 21 events" in capsys.readouterr().out
    with psycopg.connect(ledger.url) as conn:
        conn.execute("ALTER TABLE event DISABLE TRIGGER USER")
        conn.execute("UPDATE event SET leaf = sha256(leaf) WHERE kind = 'RewardDerived'")
    assert run(["verify"], settings=at(ledger)) == 1
    assert "first: position 20, event " in (shown := capsys.readouterr().out)
    assert "RewardDerived in reward-reward-a" in shown
    assert run(["verify", "--json"], settings=at(ledger)) == 1
    assert json.loads(capsys.readouterr().out)["problems"][0]["position"] == 20
    assert run(["trace", "reward-a"], settings=at(ledger)) == 1


def test_an_unmigrated_foreign_database_is_named_and_migrate_mends_it(cluster: Any, capsys: pytest.CaptureFixture[str]) -> None:
    url = cluster.empty_database()
    settings = Settings(database_url=url)
    assert run(["rewards"], settings=settings) == 2
    assert "run `tally migrate`" in capsys.readouterr().err
    assert run(["migrate"], settings=settings) == 0
    assert run(["rewards"], settings=settings) == 0
    cluster.drop(url)


def test_an_unreachable_database_is_named_without_its_password(capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(database_url="postgresql://someone:secret@127.0.0.1:1/none")
    assert run(["migrate"], settings=settings) == 2
    said = capsys.readouterr().err
    assert "LedgerUnavailable" in said
    assert "secret" not in said


def test_the_command_runs_as_a_process_and_its_pipe_may_close(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    command = [sys.executable, "-m", "ledger.cli", "events", "--json", "--limit", "1000"]
    environment = {"TALLY_DATABASE_URL": ledger.url, "TALLY_PROJECT": ledger.project, "PATH": ""}
    line = f"{' '.join(command)} | /usr/bin/head -n 1"
    piped = subprocess.run(line, shell=True, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(piped.stdout)["kind"] == "WorldRegistered"
    # Tests connect as the superuser, of which a process says so; a broken pipe says nothing more.
    assert [line.split(":")[0] for line in piped.stderr.splitlines()] == ["tallystick is a superuser"]


def test_rebuild_folds_what_is_named_and_says_how_far(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["rebuild"], settings=at(ledger)) == 0
    every = "bundles, groups, rollouts, calls, verdicts, rewards"
    assert capsys.readouterr().out == f"{every} folded up to position 21; old tables dropped: 6\n"
    assert run(["rebuild", "rewards"], settings=at(ledger)) == 0
    assert capsys.readouterr().out == "rewards folded up to position 21; old tables dropped: 1\n"
    assert run(["rebuild", "fish"], settings=at(ledger)) == 2
    assert capsys.readouterr().err == f"UnknownId: no read model 'fish'; there are {every}\n"
