import json
from pathlib import Path

import pytest

from ledger import cli
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from tests.evaluation_histories import EvaluatedRun


def tally(ledger: LedgerHandle, *arguments: str) -> int:
    return cli.run(list(arguments), settings=Settings(database_url=ledger.url, project=ledger.project))


def history(ledger: LedgerHandle, split: str = "validation") -> tuple[EvaluatedRun, str, str]:
    run = EvaluatedRun(ledger, split=split, count=8)
    old, new = run.version("tiny-a", stage="teach", step=1), run.version("tiny-b", stage="rl", step=2)
    rule = run.version("scripted-mail", scripted=True)
    run.measure("tiny", old, [[True]] + [[False]] * 7)
    run.measure("tiny", new, [[False]] + [[True]] * 7)
    run.measure("mail", rule, [[True, False]] * 8, temperature=None)
    return run, old, new


def test_evaluate_shows_every_version_with_the_fixed_rules_and_appends_once(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, old, new = history(ledger)
    curve = tmp_path / "curve.png"
    assert tally(ledger, "evaluate", run.run_id[:13], "--curve", str(curve)) == 0
    assert curve.read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr().out
    for said in (old, new, "\nmail ", "fixed rule", "slice instances, split validation", "0.875 [", "hold back", "increment:rl"):
        assert said in shown, said
    assert "new measurements appended: " in shown and "new measurements appended: 0" not in shown
    assert tally(ledger, "evaluate", "desk", "--json") == 0
    again = json.loads(capsys.readouterr().out)
    assert again["appended"] == 0 and {cell["model_version"] for cell in again["cells"]} == {old, new, "scripted-mail"}
    assert {place["temperature"] for place in again["gain_split"]} == {1.0} and again["behaviour"]
    parts = {part["name"]: part["value"] for part in again["gain_split"][0]["parts"]}
    assert parts["increment:rl"] == parts["total"] == 0.75


def test_a_dry_run_writes_nothing_and_shows_nothing_of_the_test_split(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    run, old, new = history(ledger, split="test")
    before = ledger.barrier()
    assert tally(ledger, "evaluate", run.run_id, "--split", "test", "--dry-run") == 2
    assert "every read of the test split is recorded" in capsys.readouterr().err
    assert tally(ledger, "evaluate", run.run_id, "--dry-run") == 2
    assert tally(ledger, "compare", old, new, "--dry-run") == 2
    assert "0.875" not in capsys.readouterr().out and ledger.barrier() == before


def test_reads_of_test_bundles_are_counted_in_what_is_shown(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    run, old, new = history(ledger, split="test")
    assert tally(ledger, "evaluate", run.run_id, "--json") == 0
    assert json.loads(capsys.readouterr().out)["test_reads"] == {"selection": 0, "report": 1}
    assert tally(ledger, "compare", old, new, "--purpose", "selection") == 0
    assert "reads of test bundles in these runs: 2 (for selection 1, for a report 1)" in capsys.readouterr().out


def test_compare_names_the_flips_and_fails_on_a_regression_alone(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    run, old, new = history(ledger)
    assert tally(ledger, "compare", old, new, "--fail-on-regression", "--json") == 0
    found = json.loads(capsys.readouterr().out)["comparisons"][0]
    assert (found["success_gain"]["value"], found["gain"]["controls"]["gained"], found["gain"]["controls"]["lost"]) == (0.75, 7, 1)
    assert [flip["task"] for flip in found["flips"] if not flip["gained"]] == [run.bundles[0].draft.name]
    assert tally(ledger, "compare", new, old, "--fail-on-regression", "--flips", "3") == 1
    shown = capsys.readouterr().out
    assert "flips: 1 gained, 7 lost, 0 passed by both, 0 by neither; 3 of 8 shown" in shown and "matched on tasks" in shown
    assert tally(ledger, "compare", new, old) == 0


def test_slices_of_a_file_come_before_those_of_the_bundles(
    ledger: LedgerHandle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, _, _ = history(ledger)
    path = tmp_path / "slices.json"
    path.write_text(json.dumps({bundle.bundle_id: "names" for bundle in run.bundles}))
    assert tally(ledger, "evaluate", "desk", "--slices", str(path), "--dry-run", "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    assert {cell["slice"] for cell in shown["cells"]} == {"names"} and shown["appended"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("evaluate", "nothing"), "'nothing' is no run or experiment in project"),
        (("evaluate", "desk", "--slices", "/nowhere.json"), "cannot read slices from /nowhere.json"),
        (("evaluate", "desk", "--version", "zzz"), "no model whose id begins with 'zzz'"),
        (("compare", "tiny-a,tiny-b", "tiny-a"), "2 versions are compared with 1"),
        (("compare", "tiny-a", "tiny-b", "--axis", "hope"), "axis is 'hope'; allowed: tasks"),
    ],
)
def test_misuse_is_named(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str) -> None:
    history(ledger)
    assert tally(ledger, *arguments) == 2
    assert said in capsys.readouterr().err
