from audit.verifier_agreement import agreement
from ledger.verdict_pairs import VerdictPair


def pairs(*said: tuple[bool, bool]) -> list[VerdictPair]:
    return [VerdictPair(f"r{n}", f"b{n}", mine, None, "human", theirs) for n, (mine, theirs) in enumerate(said)]


def test_kappa_of_cohens_textbook_table() -> None:
    # 20 both pass, 15 both fail, 10 and 5 apart: observed 0.7, expected 0.5, kappa 0.4.
    found = agreement("people", None, pairs(*[(True, True)] * 20, *[(False, True)] * 10, *[(True, False)] * 5, *[(False, False)] * 15))
    assert (found.share, found.only_other, found.only_this) == (0.7, 10, 5)
    assert found.kappa is not None and abs(found.kappa - 0.4) < 1e-12


def test_two_that_always_say_the_same_one_thing_have_no_kappa() -> None:
    assert agreement("people", None, pairs((True, True), (True, True))).kappa is None
