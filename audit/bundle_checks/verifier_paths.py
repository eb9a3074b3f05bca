"""The verifier accepts every declared equivalent path and rejects every declared wrong one. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

_IDS = ("verifier.equivalent_paths_accepted", "verifier.wrong_paths_rejected")


@answers(*_IDS, needs=("runtime.episode_determinism", "semantic.oracle_max"))
def verifier_paths(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the verifier knows right from wrong where the draft says which is which, and wrong paths break the conditions they name.

    Source: CLI-Universe's brittle tests (a neutral variation is rejected) and audit rule AUD-04.
    """
    refused = [attempt.as_json() for attempt in subject.equivalent if not attempt.accepted]
    let_in = [{"breaks": list(breaks), **attempt.as_json()} for attempt, breaks in subject.wrong if attempt.verdict.passed is not False]
    for attempt, breaks in subject.wrong:
        failed = {item.name for item in attempt.verdict.conditions if item.status == "failed"}
        unseen = [name for name in breaks if name not in failed]
        if attempt.verdict.passed is False and unseen:
            let_in.append({"unbroken": unseen, **attempt.as_json()})
    accepted = judged(
        _IDS[0],
        refused,
        why="a right path is rejected",
        remedy="compare end states and not the way there",
        measured={"paths": len(subject.equivalent)},
    )
    rejected = judged(
        _IDS[1], let_in, why="a wrong path is accepted, or does not break what it says", remedy="add the condition that it breaks",
        measured={"paths": len(subject.wrong)},
    )  # fmt: skip
    return [
        accepted if subject.equivalent else CheckResult(_IDS[0], "skip", "the draft declares no equivalent path"),
        rejected if subject.wrong else CheckResult(_IDS[1], "skip", "the draft declares no wrong path"),
    ]
