"""One text, one meaning: no other specification that reads the same asks for another end state. Runs worlds."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged
from audit.paths import steps_of
from ledger.canonical import digest
from training.worlds.difference import differences


@answers("task.ambiguity", needs=("semantic.oracle_max",))
def task_ambiguity(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every other specification with the same text accepts this reference's end.

    Others are bundles of the batch that tell a policy exactly the same, and the readings that the draft declares itself in
    `reference["readings"]`, each with `name` and `turns` or `end_state`. A reading that `ask_user` settles (`"settled_by": "ask_user"`)
    is a question for the user and no fault.

    Source: CLI-Universe (digest 31): two oracle end states that both satisfy the text.
    """
    reference = subject.reference
    assert reference is not None
    draft = subject.draft
    text = digest(dict(draft.request), allow_nul=True)
    siblings = [bundle.draft for bundle in subject.batch.by_text.get(text, ()) if bundle.bundle_id != subject.bundle.bundle_id]
    faults: list[Any] = []
    for other in siblings:
        if other.initial_state == draft.initial_state and (other.reference or {}).get("end_state") not in (None, reference.material):
            faults.append({"same_text_as": other.name, "differs": _paths(reference.material, (other.reference or {})["end_state"])})
        elif dict(other.spec) != dict(draft.spec):
            verdict = subject.judged(subject.start_view, reference.view, reference.walk, draft=replace(draft, spec=other.spec))
            if verdict.passed is False:
                faults.append({"same_text_as": other.name, "its_spec": dict(other.spec), "this_spec": dict(draft.spec)})
    readings = [reading for reading in subject.solution.get("readings", ()) if reading.get("settled_by") != "ask_user"]
    for reading in readings:
        end = reading.get("end_state")
        if end is None:
            _, _, end = subject.end_of(steps_of(reading["turns"]))
        if end != reference.material:
            faults.append({"reading": reading["name"], "differs": _paths(reference.material, end)})
    measured = {"same_text": len(siblings), "readings": len(readings)}
    remedy = "say in the request which one is meant, or let ask_user settle it"
    return [judged("task.ambiguity", faults, why="the text has two meanings", remedy=remedy, measured=measured)]


def _paths(one: Any, other: Any) -> list[str]:
    return [change.path for change in differences(one, other).changes]
