"""Proofs from a ledger: what `tally prove` writes, the stand-alone verifier accepts; what cannot be proved is said clearly."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledger import proof, seal_files
from ledger.cli import run
from ledger.errors import SealRefused, UnknownId
from ledger.ledger import LedgerHandle
from ledger.prove import prove_event, resolve_event, write_proof
from ledger.seal import sealer
from ledger.seal_files import SealFiles
from ledger.settings import Settings


@pytest.fixture
def settings(ledger: LedgerHandle, tmp_path: Path) -> Settings:
    """Of a deployment of its own."""
    return Settings(data_dir=tmp_path, database_url=ledger.url, project=ledger.project, actor="tester")


def key_of(settings: Settings, capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["key"], settings=settings) == 0
    return capsys.readouterr().out.strip()


def test_a_proof_from_the_ledger_is_accepted_and_a_changed_one_is_not(
    ledger: LedgerHandle, settings: Settings, sealed: Callable[[LedgerHandle], None], history: Any, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    sealed(ledger)
    assert run(["seal", "--once"], settings=settings) == 0
    for n in range(300):
        history.start(f"later-{n}")
    early = (tmp_path / "checkpoints.txt").read_text()
    (tmp_path / "kept.txt").write_text(early)
    assert run(["seal", "--once"], settings=settings) == 0
    vkey, out = key_of(settings, capsys), tmp_path / "proof.json"
    for ident in ("reward-a", "verdict-a", "rollout-a", "later-299", resolve_event(ledger, "reward-a")[:10]):
        assert run(["prove", ident, "--out", str(out), "--witness", str(tmp_path / "kept.txt")], settings=settings) == 0
        assert proof.main([str(out), "--key", vkey, "--witness", str(tmp_path / "kept.txt")]) == 0, ident
        assert proof.main([str(out), "--key", vkey, "--witness", str(tmp_path / "checkpoints.txt")]) == (0 if ident else 1)
    capsys.readouterr()
    content = json.loads(out.read_text())
    assert content["event"]["kind"] == "RewardDerived"
    content["event"]["actor_id"] = "someone"
    out.write_text(json.dumps(content))
    assert proof.main([str(out), "--key", vkey]) == 1


def test_each_event_of_the_ledger_has_a_proof(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], tmp_path: Path) -> None:
    sealed(ledger)
    with sealer(ledger, SealFiles(tmp_path / "seal.key", None)) as own:
        own.seal()
    with ledger.connection() as conn:
        for (event_id,) in conn.execute("SELECT event_id::text FROM event").fetchall():
            made = proof.read_proof(write_proof(prove_event(conn, event_id)))
            assert dict(proof.checks(made, proof.parse_key(own.vkey)))


def test_what_is_not_sealed_is_said_to_be_so(
    ledger: LedgerHandle, settings: Settings, sealed: Callable[[LedgerHandle], None], capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["prove", "reward-a"], settings=settings) == 2
    assert "is not sealed yet: checkpoints cover 0 events; run `tally seal --once`" in capsys.readouterr().err
    assert run(["checkpoint"], settings=settings) == 2
    assert "no checkpoint yet" in capsys.readouterr().err
    assert run(["key"], settings=settings) == 2
    assert "tally seal --init" in capsys.readouterr().err


def test_an_id_that_names_nothing_or_several_is_refused(ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None]) -> None:
    sealed(ledger)
    with pytest.raises(UnknownId, match="no reward or verdict or rollout"):
        resolve_event(ledger, "nothing")
    with pytest.raises(UnknownId, match="several"):
        resolve_event(ledger, "verdict-")


def test_no_proof_is_written_against_a_witness_that_does_not_agree(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], tmp_path: Path
) -> None:
    from ledger import checkpoint
    from ledger.proof import Checkpoint

    sealed(ledger)
    key = seal_files.make_key(tmp_path / "seal.key")
    with sealer(ledger, SealFiles(tmp_path / "seal.key", None)) as own:
        own.seal()
    event_id = resolve_event(ledger, "reward-a")
    with ledger.connection() as conn:
        for size, said in ((5, "not one of this log's past"), (500, "lies below")):
            note = checkpoint.sign(Checkpoint(own.origin, size, bytes(32)), key)
            with pytest.raises(SealRefused, match=said):
                prove_event(conn, event_id, [note])


def test_the_commands_seal_show_and_verify(
    ledger: LedgerHandle, settings: Settings, sealed: Callable[[LedgerHandle], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sealed(ledger)
    assert run(["seal", "--init"], settings=settings) == 0
    vkey = capsys.readouterr().out.strip()
    assert proof.parse_key(vkey).name == f"tallystick.local/{ledger.ledger_id}"
    assert run(["seal", "--once"], settings=settings) == 0
    assert "sealed 21 events" in capsys.readouterr().out
    assert run(["seal", "--once"], settings=settings) == 0
    assert "nothing new; sealed up to 21" in capsys.readouterr().out
    assert run(["checkpoint"], settings=settings) == 0
    assert proof.open_checkpoint(capsys.readouterr().out, proof.parse_key(vkey)).size == 21
    assert run(["verify", "--key", vkey, "--witness", str(tmp_path / "checkpoints.txt"), "--json"], settings=settings) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["intact"], shown["signed"], shown["outside_size"], shown["checkpoints"]) == (True, True, 21, 1)
    assert run(["verify", "--fast"], settings=settings) == 0
    assert "left out: the content of blobs and tokens" in capsys.readouterr().out
    assert run(["verify", "--key", "nonsense"], settings=settings) == 2
    assert run(["seal", "--fork"], settings=settings) == 1
    assert "nothing to fork from" in capsys.readouterr().err
