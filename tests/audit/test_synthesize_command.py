import json
import re
from pathlib import Path
from typing import Any

import pytest

from ledger import cli
from ledger.settings import Settings


def tally(url: str, *arguments: str) -> int:
    return cli.run(["synthesize", *arguments], settings=Settings(database_url=url, project="test"))


def test_it_says_what_was_admitted_and_why_not_and_adds_nothing_the_second_time(
    ledger_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "decisions.jsonl"
    assert tally(ledger_url, "desk", "--families", "8", "--seed", "7", "--json", "--out", str(out)) == 0
    first = json.loads(capsys.readouterr().out)
    assert (first["bundles"], first["sealed"], first["decided"], first["world_checks"]) == (8, 8, 8, 4)
    assert first["admitted"] + first["rejected"] == 8 and first["admitted"] > 0
    assert sum(len(item["reasons"]) > 0 for item in first["decisions"]) == first["rejected"]
    assert set(first["environment_gate"].values()) == {"pass"}
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["bundle_id"] for line in lines] == [item["bundle_id"] for item in first["decisions"]]
    assert {len(line["results"]) for line in lines} == {61}
    assert tally(ledger_url, "desk", "--families", "8", "--seed", "7", "--json") == 0
    again: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert (again["sealed"], again["decided"], again["world_checks"]) == (0, 0, 0)
    assert again["decisions"] == first["decisions"]


def test_a_planted_verifier_admits_nothing_and_the_table_names_the_gap(ledger_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tally(ledger_url, "ticket_desk", "--families", "2", "--seed", "7", "--verifier", "desk_without_cooldown") == 1
    shown = capsys.readouterr().out
    assert re.search(r"admitted 0, rejected 2", shown) and re.search(r"verifier.kill_score +2", shown)
    assert "mutants survive: duplicate send_email" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["mars"], "no world 'mars'; there are desk, "),
        (["desk", "--policy", "v0"], "no severity policy 'v0'"),
        (["desk", "--families", "2", "--verifier", "bfcl_checker"], "has no verifier 'bfcl_checker'; it has end_state, desk_conditions"),
    ],
)
def test_misuse_is_named(ledger_url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert tally(ledger_url, *arguments) == 2
    assert said in capsys.readouterr().err


def test_tasks_of_a_proposer_go_through_the_same_gates(ledger_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert tally(ledger_url, "desk", "--families", "3", "--seed", "3", "--proposer", "healthy_inversion", "--json") == 0
    made = json.loads(capsys.readouterr().out)
    assert made["bundles"] == made["admitted"] + made["rejected"] == 3 and made["admitted"] > 0
    assert all(item["name"].startswith("healthy_inversion_") for item in made["decisions"])
    assert tally(ledger_url, "desk", "--proposer", "nothing") == 2
    assert "no method 'nothing'" in capsys.readouterr().err
