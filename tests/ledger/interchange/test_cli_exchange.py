"""The commands export, check-export, push and pull: their exit codes, their words, their JSON."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger.cli import run
from ledger.settings import Settings


def at(sealed: Any) -> Settings:
    """Settings that name its database."""
    return Settings(database_url=sealed.ledger.url, project="test", actor="tester")


def test_a_log_travels_by_command_both_ways(
    laptop: Any, centre: Any, sealed: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(laptop.ledger)
    assert run(["push", centre.ledger.url, "--key", laptop.key, "--with-keys"], settings=at(laptop)) == 2
    assert "run `tally seal`" in capsys.readouterr().err
    head = laptop.seal()
    command = ["push", centre.ledger.url, "--key", laptop.key, "--with-keys"]
    assert run([*command, "--dry-run", "--json"], settings=at(laptop)) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["status"], told["events"], told["kinds"]["ModelCalled"]) == ("would push", head.size, 2)
    assert run(command, settings=at(laptop)) == 0
    assert f"0 events were there before, {head.size} are new" in capsys.readouterr().out
    assert run([*command, "--json"], settings=at(laptop)) == 0
    assert json.loads(capsys.readouterr().out)["status"] == "nothing to push"
    centre.seal()
    assert run(["push", centre.ledger.url, "--key", centre.key, "--with-keys"], settings=at(laptop)) == 2
    assert "no signature of the trusted key" in capsys.readouterr().err
    (tmp_path / "centre.vkey").write_text(f"{centre.key}\n")
    assert run(["pull", centre.ledger.url, "--key", str(tmp_path / "centre.vkey"), "--with-keys", "--json"], settings=at(laptop)) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 1
    assert run(["push", centre.ledger.url, "--key", "nonsense"], settings=at(laptop)) == 2
    assert "--key" in capsys.readouterr().err


def test_the_key_is_that_of_the_sealer_here_unless_it_is_named(
    laptop: Any, centre: Any, sealed: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(laptop.ledger)
    settings = Settings(data_dir=tmp_path, database_url=laptop.ledger.url, project="test", actor="tester")
    assert run(["seal", "--once"], settings=settings) == 0
    assert run(["push", centre.ledger.url, "--json"], settings=settings) == 0
    with centre.ledger.connection() as conn:
        taken = conn.execute("SELECT key FROM source_log").fetchall()
    capsys.readouterr()
    assert run(["key"], settings=settings) == 0
    assert taken == [(capsys.readouterr().out.strip(),)]
    assert run(["export", str(tmp_path / "log.jsonl")], settings=settings) == 0
    assert run(["push", centre.ledger.url, "--from", str(tmp_path / "log.jsonl")], settings=settings) == 2
    assert "--from without --key" in capsys.readouterr().err


def test_an_export_is_checked_by_command_without_a_database(
    laptop: Any, sealed: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(laptop.ledger)
    laptop.seal()
    file = tmp_path / "log"
    assert run(["export", str(file), "--format", "jsonl", "--stream", "rollout-rollout-a", "--with-keys"], settings=at(laptop)) == 0
    path = tmp_path / "log.jsonl"
    assert str(path) in capsys.readouterr().out.replace("\n", "")
    assert run(["check-export", str(path), "--key", laptop.key]) == 0
    shown = capsys.readouterr().out
    assert "VALID" in shown and "whole streams: 1: rollout-rollout-a" in shown and "not that no other was" in shown
    path.write_bytes(path.read_bytes().replace(b"rollout-a", b"rollout-b", 3))
    assert run(["check-export", str(path), "--key", laptop.key, "--json"]) == 1
    assert json.loads(capsys.readouterr().out)["fault"].startswith("line ")
    assert run(["export", str(tmp_path / "x.parquet"), "--format", "jsonl"], settings=at(laptop)) == 2
    assert run(["export", str(tmp_path / "x.jsonl"), "--kinds", "NoSuchKind"], settings=at(laptop)) == 2
