"""What an asset says of a stage: counts with denominators, the log range, outcomes and reasons. Reads the ledger."""

from collections import Counter
from collections.abc import Callable, Mapping

import dagster as dg

from ledger import queries
from ledger.attempts import counted
from ledger.queries import Filter
from pipelines.figures import counts_table, coverage_table, markdown_table, missing_table, outcome_chart, outcome_table
from training.lab import Lab
from training.stages import StageReport

Metadata = dict[str, dg.MetadataValue]


def stage_metadata(lab: Lab, round: int, report: StageReport) -> Metadata:
    """What every stage shows: the experiment, its counts, and which events lie in the log range (since, until]."""
    run = lab.run(round)
    events = queries.event_counts(lab.ledger, since=report.since, until=report.until)
    return {
        **{name: dg.MetadataValue.int(count) for name, count in report.counts.items()},
        "log range": dg.MetadataValue.text(f"({report.since}, {report.until}]"),
        "since": dg.MetadataValue.int(report.since),
        "until": dg.MetadataValue.int(report.until),
        "events in the range": dg.MetadataValue.md(counts_table(events, "event")),
        "experiment": dg.MetadataValue.text(lab.config.name),
        "experiment_id": dg.MetadataValue.text(run.experiment_id),
        "run_id": dg.MetadataValue.text(run.run_id),
        "round": dg.MetadataValue.int(round),
    }


def attempt_metadata(lab: Lab, round: int) -> Metadata:
    """How the counted attempts ended, and which slots have one."""
    where = Filter(run_id=lab.run(round).run_id, round=round)
    ended = Counter((rollout.policy, rollout.world, rollout.ended_by) for rollout in counted(lab.ledger, lab.run().run_id, round))
    rows = [[*key, count] for key, count in sorted(ended.items())]
    coverage = queries.coverage(lab.ledger, Filter(experiment_id=lab.experiment_id, round=where.round))
    return {
        "ended by": dg.MetadataValue.md(markdown_table(["policy", "world", "ended by", "rollouts"], rows)),
        "coverage": dg.MetadataValue.md(coverage_table(coverage)),
    }


def outcome_metadata(lab: Lab, round: int) -> Metadata:
    """Outcomes with their denominators, as a table and as bars, and why rewards are missing."""
    queries.fresh(lab.ledger)
    where = Filter(run_id=lab.run(round).run_id, round=round)
    lines = queries.outcomes(lab.ledger, where)
    return {
        "outcomes": dg.MetadataValue.md(outcome_table(lines)),
        "chart": dg.MetadataValue.md(outcome_chart(lines)),
        "missing rewards": dg.MetadataValue.md(missing_table(queries.missing_rewards(lab.ledger, where))),
        "judged": dg.MetadataValue.int(sum(line.judged for line in lines)),
        "succeeded": dg.MetadataValue.int(sum(line.counts["succeeded"] for line in lines)),
    }


class LoggedProgress:
    """A stage's progress as log lines: one for each tenth of each kind of work, so that a long step says where it is."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._done: Counter[str] = Counter()

    def __call__(self, what: str, done: int, total: int) -> None:
        """Count `done` more of `total`."""
        before = self._done[what]
        self._done[what] += done
        if total and self._done[what] * 10 // total > before * 10 // total:
            self._say(f"{what}: {self._done[what]} of {total}")


def merged(*parts: Mapping[str, dg.MetadataValue]) -> Metadata:
    """All entries of the parts, in order."""
    return {name: value for part in parts for name, value in part.items()}
