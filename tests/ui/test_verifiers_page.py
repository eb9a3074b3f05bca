"""The verifiers page: the list, and the datasheet that an audit left."""

from audit.verifier_datasheet import datasheet, record
from audit.verifier_list import recorded
from ledger.ledger import LedgerHandle
from tests.audit.verifier_cases import audited
from tests.builders import DeskHistory
from tests.ui.conftest import Open
from training.verifiers import verifiers


def test_the_list_opens_a_datasheet_with_gaps_and_the_command_that_makes_it_again(ledger: LedgerHandle, page: Open) -> None:
    DeskHistory(ledger, tasks=1)
    found = audited("desk_any_mail", count=1)
    assert record(ledger, found, datasheet(ledger, found, [], command="tally audit verifier desk_any_mail --seed 0")) > 0
    kept = recorded(ledger, found.verifier_id)
    assert kept is not None and len(kept["counterexamples"]) == len(kept["gaps"]) > 0

    app = page(ledger.url, "verifiers")
    assert not app.exception
    table = app.dataframe[0].value.set_index("verifier")
    assert table.loc["desk_any_mail", "gaps"] == len(found.gaps) == table.loc["desk_any_mail", "counterexamples to decide"]
    assert table.loc["desk_any_mail", "kill score"] < 1 and table["kill score"].isna().sum() == 4

    app = page(ledger.url, "verifiers", verifier=found.verifier_id)
    assert not app.exception
    assert app.title[0].value == "desk\\_any\\_mail" or app.title[0].value == "desk_any_mail"
    assert app.code[0].value == "tally audit verifier desk_any_mail --seed 0"
    assert "change send_email.to" in set(app.dataframe[1].value["kind"])

    other = verifiers.bind("end_state").ref.method_id
    assert "never audited" in page(ledger.url, "verifiers", verifier=other).info[0].value


def test_an_empty_ledger_has_no_verifier(ledger_url: str, page: Open) -> None:
    app = page(ledger_url, "verifiers")
    assert not app.exception and "No verifier is registered" in app.info[0].value
