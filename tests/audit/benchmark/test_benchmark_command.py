"""The command: makes a suite in a project of its own, prints and scores it, and says by its exit code whether the goal is met."""

import json
from pathlib import Path

from typer.testing import CliRunner

from audit.audit_command import audit
from ledger.ledger import open_ledger
from ledger.settings import Settings

RULE = "tests.audit.benchmark.rig:plain_rule"


def test_a_suite_is_made_and_scored_in_a_project_of_its_own(ledger_url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=ledger_url, project="mine", processes=1)
    asked = ["benchmark", "--cases", "1", "--seed", "4", "--kinds", "verifier_crashed,swapped_rewards", "--worlds", "ticket_desk"]
    asked += ["--attribution", RULE]
    done = CliRunner().invoke(audit, [*asked, "--json", "--picture", str(tmp_path / "p.png")], obj=settings)
    assert done.exit_code == 1, done.output
    told = json.loads(done.stdout)
    # One case is never enough for a lower bound of 0.95.
    assert told["missed"] and told["kinds"]["verifier_crashed"]["boundary"]["hits"] == 1
    assert told["kinds"]["swapped_rewards"]["named"]["hits"] == 1 and told["held_out"] == ["swapped_rewards"]
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"
    with open_ledger(ledger_url, project="mine", actor_id="tester") as mine:
        assert not mine.read()
    again = CliRunner().invoke(audit, asked, obj=settings)
    assert "goal not met for" in again.stdout


def test_misuse_is_said(ledger_url: str, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path, database_url=ledger_url)
    for asked, said in ((["--attribution", "nowhere:at_all"], "nowhere:at_all"), (["--kinds", "nonsense"], "nonsense")):
        done = CliRunner().invoke(audit, ["benchmark", *asked], obj=settings)
        assert done.exit_code != 0 and said in str(done.exception)
