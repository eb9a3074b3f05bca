"""The commands that operate a ledger, as somebody types them."""

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger.cli import run
from ledger.events import RewardDerived
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.conftest import Cluster


def test_backup_restore_and_check_say_what_they_proved(
    ledger: LedgerHandle, cluster: Cluster, tmp_path: Path, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    here = Settings(data_dir=tmp_path / "here", database_url=ledger.url)
    there = Settings(data_dir=tmp_path / "there", database_url=cluster.empty_database())
    folder = str(tmp_path / "copy")
    assert run(["backup", folder, "--json"], settings=here) == 0
    log = json.loads(capsys.readouterr().out)["log"]
    assert (log["ledger_id"], log["size"]) == (ledger.ledger_id, 21)
    assert run(["restore", folder], settings=there) == 0
    said = capsys.readouterr().out
    assert "restored 21 events" in said
    assert f"size 21, root {log['root']}" in said
    assert run(["restore", folder, "--check"], settings=there) == 0
    assert "continues this log" in capsys.readouterr().out
    assert run(["restore", folder], settings=there) == 2
    assert f"BackupError: the database holds ledger {ledger.ledger_id}" in capsys.readouterr().err
    assert run(["backup", folder], settings=here) == 2
    assert "exists; expected the name of a folder that does not" in capsys.readouterr().err
    cluster.drop(str(there.database_url))


def reward(reward_id: str) -> RewardDerived:
    return RewardDerived(reward_id=reward_id, rollout_id="r", rule="rule", rule_id="0" * 64, verdict_ids=[], value=1.0, reason="")


def test_a_restore_below_a_published_checkpoint_goes_on_under_a_new_name(
    ledger: LedgerHandle, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here = Settings(data_dir=tmp_path / "here", database_url=ledger.url)
    ledger.append([ledger.new(reward("kept"))])
    assert run(["seal", "--once"], settings=here) == 0
    assert run(["backup", str(tmp_path / "copy")], settings=here) == 0
    ledger.append([ledger.new(reward("lost"))])
    assert run(["seal", "--once"], settings=here) == 0
    again = Settings(data_dir=tmp_path / "here", database_url=cluster.migrated_database())
    assert run(["restore", str(tmp_path / "copy")], settings=again) == 0
    assert run(["seal", "--once"], settings=again) == 1
    assert "REFUSED" in capsys.readouterr().err
    forked = Settings(data_dir=tmp_path / "here", database_url=cluster.migrated_database())
    assert run(["restore", str(tmp_path / "copy"), "--fork"], settings=forked) == 0
    assert "/fork-1 from position" in capsys.readouterr().out
    assert run(["seal", "--once"], settings=forked) == 0
    for url in (again.database_url, forked.database_url):
        cluster.drop(str(url))


def test_another_ledger_does_not_continue_a_backup(
    ledger: LedgerHandle, cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["backup", str(tmp_path / "copy")], settings=Settings(data_dir=tmp_path / "here", database_url=ledger.url)) == 0
    other = Settings(data_dir=tmp_path / "there", database_url=cluster.migrated_database())
    assert run(["restore", str(tmp_path / "copy"), "--check"], settings=other) == 2
    assert "not the log that was backed up" in capsys.readouterr().err
    cluster.drop(str(other.database_url))


def test_the_key_is_exported_apart_or_said_to_be_missing(ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(data_dir=tmp_path / "here", database_url=ledger.url)
    assert run(["backup"], settings=settings) == 2
    assert run(["backup", "--key", str(tmp_path / "key")], settings=settings) == 2
    assert "seal.key: No such file or directory" in capsys.readouterr().err
    (tmp_path / "here" / "keys").mkdir(parents=True)
    (tmp_path / "here" / "keys" / "seal.key").write_text("secret")
    assert run(["backup", "--key", str(tmp_path / "key")], settings=settings) == 0
    assert (tmp_path / "key").read_text() == "secret"


def test_metrics_are_served_until_interrupted(ledger: LedgerHandle) -> None:
    command = [sys.executable, "-m", "ledger.cli", "metrics", "--port", "0"]
    environment = {**os.environ, "TALLY_DATABASE_URL": ledger.url}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split()[-1]
        with urllib.request.urlopen(url, timeout=30) as answer:
            assert b"tallystick_up 1.0" in answer.read()
        process.send_signal(2)
        assert process.wait(timeout=30) == 130
