"""Connecting: the embedded database is made and migrated when it is asked for, and other packages add commands and decoders."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import embedded
from ledger.cli import run
from ledger.connect import connect
from ledger.ledger import LedgerHandle
from ledger.settings import Settings

PLUGIN = '''
import typer

def hello(name: str) -> None:
    """Greet."""
    typer.echo(f"hello {name}")

def decode(model_version, token_ids):
    return f"<{model_version}:{len(token_ids)}>\\x1b" if model_version == "model1" else None
'''
ENTRIES = "[tallystick.commands]\nhello = plug:hello\nbroken = nowhere:at_all\n[tallystick.decoders]\nplug = plug:decode\n"


def test_the_embedded_database_is_made_migrated_and_found_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(data_dir=tmp_path / "data", database_url=None)
    assert run(["db", "status"], settings=settings) == 1
    assert "absent" in capsys.readouterr().out
    try:
        with connect(settings) as first:
            ledger_id = first.ledger_id
        assert run(["db", "status"], settings=settings) == 0
        assert "running" in capsys.readouterr().out
        assert run(["db", "stop"], settings=settings) == 0
        with connect(settings) as second:
            assert second.ledger_id == ledger_id
    finally:
        embedded.destroy(settings.data_dir / "postgres")


def test_other_packages_add_commands_and_decoders(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], tmp_path: Path) -> None:
    sealed(ledger)
    (tmp_path / "plug.py").write_text(PLUGIN)
    (tmp_path / "plug-1.0.dist-info").mkdir()
    (tmp_path / "plug-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n")
    (tmp_path / "plug-1.0.dist-info" / "entry_points.txt").write_text(ENTRIES)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "TALLY_DATABASE_URL": ledger.url, "TALLY_PROJECT": ledger.project}

    def tally(*arguments: str) -> str:
        command = [sys.executable, "-m", "ledger.cli", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout

    assert tally("hello", "world") == "hello world\n"
    assert "decoded <model1:3>\\x1b" in tally("trace", "reward-a")
