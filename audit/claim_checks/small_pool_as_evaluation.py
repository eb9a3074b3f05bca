"""A run on a handful of tasks, or on those that were trained on, is a diagnosis."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged


@answers("small_pool_as_evaluation")
def small_pool_as_evaluation(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a number that is shown as an evaluation rests on few tasks, or on the training split.

    Reads the settings `tasks` (or `bundles`), `split` and `purpose`; `purpose = "diagnostic"` says it is none.

    Source: Arctic-SWE: over-fitting a small pool finds faults and shows no generalisation; audit predicate AUD-32.
    """
    if subject.word("purpose") == "diagnostic":
        return [CheckResult("small_pool_as_evaluation", "pass", measured={"purpose": "diagnostic"})]
    tasks = subject.number("tasks") if subject.number("tasks") is not None else subject.number("bundles")
    split, least = subject.word("split"), int(policy["pool_tasks_least"])
    if tasks is None and split is None:
        return [
            CheckResult(
                "small_pool_as_evaluation", "skip", "neither the number of tasks nor the split is stated: settings `tasks`, `split`"
            )
        ]
    faults: list[Any] = []
    if tasks is not None and tasks < least:
        faults.append({"tasks": tasks, "needed": least})
    if split in ("train", "training"):
        faults.append({"split": split, "needed": "a split that nothing was trained on"})
    measured = {"tasks": tasks, "split": split}

    return [
        judged(
            "small_pool_as_evaluation",
            faults,
            why="it is a diagnosis, shown as an evaluation",
            remedy="set purpose to diagnostic, or measure on more tasks that nothing was trained on",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
