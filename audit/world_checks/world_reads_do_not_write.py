"""Tools that say that they only read leave the material state alone. Runs worlds."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.world_checks import CheckResult, WorldSubject, answers, judged
from audit.world_subject import is_reading

SHOWN = 10


@answers("world.reads_do_not_write")
def world_reads_do_not_write(subject: WorldSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no legal call of a reading tool changed the material state: logs and clocks may go on.

    A tool reads when its annotation `readOnlyHint` says so, else when its name starts with a verb such as get, list or query.
    """
    reading = sorted(tool for tool in subject.tools if is_reading(subject, tool))
    rounds = [item for item in subject.rounds if item.tool in reading and item.legal]
    measured = {"reading_tools": reading, "rounds": len(rounds)}
    if not rounds:
        return [CheckResult("world.reads_do_not_write", "skip", "no tool says that it only reads", measured)]
    faults = [item.as_json() for item in rounds if item.changes]
    return [
        judged(
            "world.reads_do_not_write", faults[:SHOWN], measured=measured, why=f"{len(faults)} reads changed the state",
            remedy="take the write out of the reading tool, or name it as what it is",
        )
    ]  # fmt: skip
