"""A gain belongs to the stage that made it."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.claim_checks import CheckResult, Statement, answers, judged
from audit.statistics import Table
from audit.statistics.increments import increments
from ledger.errors import StatisticRefused


@answers("increments_skip_sft")
def increments_skip_sft(subject: Statement, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a chain of stages has its supervised stage before reinforcement, and the claimed gain is that of its own stage.

    Reads the settings `stage.<number>.<name>` (the value at each stage, in the order of the numbers) and `gain_of` (the stage that the
    claimed value is the gain of).

    Source: the survey's reading rule P1: 28.88 / 37.00 / 41.88 is 8.12 of SFT and 4.88 of RL; audit predicate AUD-43.
    """
    numbered = sorted((key.partition(".") for key in subject.part("stage")), key=lambda part: (len(part[0]), part[0]))
    if len(numbered) < 2:
        return [CheckResult("increments_skip_sft", "skip", "fewer than two stages are stated: settings `stage.<number>.<name>`")]
    stages = [name.lower() for _, _, name in numbered]
    values = [subject.number(f"stage.{number}.{name}") for number, _, name in numbered]
    gain_of = subject.word("gain_of")
    claims = [subject.value if name == gain_of else None for name in stages]
    faults: list[Any] = []
    if gain_of is not None and gain_of not in stages:
        faults.append({"gain_of": gain_of, "stages": stages})
    try:
        increments(
            Table.of(
                [{"stage": s, "value": v, "claimed": c} for s, v, c in zip(stages, values, claims, strict=True)],
                ("stage", "value", "claimed"),
            )
        )
    except StatisticRefused as refused:
        faults.append(str(refused))
    measured = {"stages": stages, "values": values}

    return [
        judged(
            "increments_skip_sft",
            faults,
            why="the gain is not that of its stage",
            remedy="state every stage with its value; the parts must add up to the total",
            measured=measured,
            evidence_event_ids=(subject.event_id,),
        )
    ]
