"""Open source is not reproducible: each of twelve parts is there, in part, absent or not looked for."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged

PARTS = (
    "data", "initial_environment", "tool_image", "reward", "training_script", "weights", "evaluation_harness", "compute",
    "policy_version", "prompts", "logprobs", "cache_and_reset",
)  # fmt: skip
STATES = ("have", "partial", "absent", "not_checked")


@answers("reproduction_card_incomplete")
def reproduction_card_incomplete(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether the card of a reproduction says of all twelve parts what is there.

    Reads the settings `repro.<part>`: have, partial, absent or not_checked. A claim with a measurement attached needs a card.

    Source: the survey's reading rule P4; audit predicate AUD-45.
    """
    card = {name: str(state).strip().lower() for name, state in subject.part("repro").items()}
    if not card and subject.settings.get("evaluation_id") is None:
        return [
            CheckResult(
                "reproduction_card_incomplete",
                "skip",
                "nobody says that it was reproduced: no `repro.` setting and no measurement attached",
            )
        ]
    missing = [name for name in PARTS if name not in card]
    wrong = {name: state for name, state in card.items() if name not in PARTS or state not in STATES}
    open_parts = [name for name in PARTS if card.get(name) in ("partial", "absent", "not_checked")]
    faults: list[Any] = [*([{"missing": missing}] if missing else []), *([{"not allowed": wrong}] if wrong else [])]
    measured = {"have": sum(state == "have" for state in card.values()), "of": len(PARTS), "open": open_parts}

    return [
        judged(
            "reproduction_card_incomplete",
            faults,
            why="the card is incomplete",
            remedy="state have, partial, absent or not_checked of every part",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
