"""`tally rows`: the table, the text of both sides where a prompt left a row, and the same as JSON."""

import json
from collections.abc import Sequence

import pytest
import typer

from ledger.errors import UnknownId
from ledger.ledger import LedgerHandle
from ledger.queries import fresh
from ledger.settings import Settings
from ledger.terminal import console
from tests.round_histories import Told, write_round
from tests.row_shapes import HEAD, append_only, compaction, parallel, retokenised_tail, retry
from training.rows_command import print_rows, rows
from training.rows_shown import rollout_rows

H = len(HEAD)


def run(ledger: LedgerHandle, *arguments: str) -> None:
    app = typer.Typer()
    app.command()(rows)
    app(list(arguments), standalone_mode=False, obj=Settings(database_url=ledger.url, project=ledger.project, actor="tester"))


def spelled(model_version: str, token_ids: Sequence[int]) -> str | None:
    """A tokenizer that knows one version and writes an id as a word, a control character in one of them."""
    return "".join(f"w{i}\x1b " if i == 199 else f"w{i} " for i in token_ids) if model_version == "policy-1" else None


def test_rows_are_listed_with_the_reason_and_ids_where_no_tokenizer_is_at_hand(
    ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]
) -> None:
    write_round(ledger, [Told("rollout-a", compaction(), sampling={"temperature": 0.5})])
    run(ledger, "rollout-a")
    shown = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert lines[0] == "row participant calls tokens trained opened because left row at token"
    assert lines[1] == "0 agent 0, 1, 2 51 14 start - -"
    assert lines[2] == f"1 agent 3, 4 40 10 compaction 0 {H}"
    assert f"row 1 left row 0 at token {H} (not sampled there): compaction" in lines
    assert "row 6 3 100 101 102 103 2 3 7 500 501 502 2 3 6 3 110 111 112 113 2 3 7 510" in lines
    assert "sampling temperature 0.5 (processed_logprobs): not the plain distribution" in lines


def test_both_sides_are_decoded_and_control_characters_written_out(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    write_round(ledger, [Told("a", retokenised_tail()), Told("b", append_only(1), slot=1, version="other-1")])
    fresh(ledger)
    print_rows(console(), rollout_rows(ledger, "a", spelled))
    shown = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert f"row 1 left row 0 at token {H + 4} (sampled by call 0 there): parser" in shown
    assert "row w102 w103 w2" in shown
    assert any(line.startswith("prompt w199\\x1b w2 w3") for line in shown)
    assert rollout_rows(ledger, "b", spelled).rows[0].divergence is None


def test_json_holds_ids_and_text_of_both_sides(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    write_round(ledger, [Told("a", parallel()), Told("b", retry(), slot=1)])
    run(ledger, "a", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["counters"] == {"rows_opened:parallel": 1, "rows_opened:start": 1}
    assert said["rows"][1] | {"shared": 0, "held": 0} == {
        "index": 1, "participant": "agent", "calls": [1], "tokens": H + 7 + 7 + 2 + 5, "trained": 5, "open_reason": "parallel",
        "left_row": 0, "diverges_at": H + 7 + 7 + 2, "sampled_by": 2, "shared": 0, "held": 0, "prompt": {"token_ids": [], "text": None},
    }  # fmt: skip
    assert said["rows"][1]["held"]["token_ids"][:5] == [120, 121, 122, 123, 2]
    run(ledger, "b", "--json")
    assert json.loads(capsys.readouterr().out)["counters"]["left_out:superseded"] == 1


def test_a_rollout_without_tokens_and_one_that_is_not_there_are_told(ledger: LedgerHandle, capsys: pytest.CaptureFixture[str]) -> None:
    write_round(ledger, [Told("a", append_only(2), scripted=True)])
    run(ledger, "a")
    assert capsys.readouterr().out.splitlines() == ["No rows: no call of this rollout has token ids.", "counted   left_out:no_token_ids 2"]
    with pytest.raises(UnknownId, match="no rollout whose id begins with 'x'"):
        run(ledger, "x")
