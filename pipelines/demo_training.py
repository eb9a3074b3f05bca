"""The demo's second half: a policy learns from scratch, is measured after each stage, and is served by vLLM. Starts processes."""

import threading
from collections.abc import Callable
from typing import Protocol

from rich.table import Table

from audit import bundle_stages
from audit.evaluation import Cell, Evaluation, Question, evaluate
from audit.evaluation_curves import gains
from audit.evaluation_record import append, measured_events, record_reads
from audit.statistics import Estimate
from ledger.errors import TallyError
from ledger.ledger import LedgerHandle
from training import stages
from training.lab import Lab
from training.optimise import evaluations, trainer
from training.optimise.opened import Training
from training.optimise.samplers import VllmRounds, open_sampler, vllm_engine
from training.rollout.vllm_sampling import VllmEngine
from training.stages import StageReport

SERVED_TASKS = 16


class Shown(Protocol):
    """Where progress is shown."""

    def say(self, line: str) -> None:
        """Print one line."""
        ...

    def progress(self, what: str, done: int, total: int) -> None:
        """Advance a bar."""
        ...


Stage = Callable[[str, Callable[[], StageReport]], None]


def train_and_measure(lab: Lab, screen: Shown, stage: Stage, *, with_model: bool) -> Evaluation:
    """What was measured of the experiment's policy before, between and after its stages; run again, everything is there already.

    Args:
        stage: runs a stage under its name and says what it did.
        with_model: the last version is served by vLLM too, whose server starts while the rounds run.
    Raises:
        TallyError: a stage could not be done; running again goes on from there.
    """
    stage("worlds", lambda: stages.worlds(lab))
    stage("task bundles", lambda: stages.task_bundles(lab, progress=screen.progress))
    stage("world checks", lambda: bundle_stages.world_checks(lab, progress=screen.progress).report)
    stage("bundle checks", lambda: bundle_stages.bundle_checks(lab, progress=screen.progress).report)
    stage("traces of a teacher", lambda: trainer.supervised_traces(lab, progress=screen.progress))
    stage("copying and imitation", lambda: trainer.sft_model(lab, progress=screen.progress))
    server = vllm_engine(lab)
    warming = _warm(lab, server, screen) if with_model else None
    try:
        stage("rounds of reinforcement", lambda: _rounds(lab, screen))
        stage("fixed rules", lambda: evaluations.evaluate_fixed_rules(lab, progress=screen.progress))
        with open_sampler(lab) as sampler:
            for place in evaluations.evaluated_places(Training(lab)):
                label = place.label
                stage(
                    f"evaluation of {label}",
                    lambda label=label: evaluations.evaluate_version(lab, label, sampler, progress=screen.progress),  # type: ignore[misc]
                )
        if warming is not None:
            warming.join()
            rounds = VllmRounds(server)
            stage("rollouts served by vLLM", lambda: evaluations.sample_through_server(lab, rounds, SERVED_TASKS, progress=screen.progress))
    finally:
        server.close()
    assert lab.config.train is not None
    found = evaluate(lab.ledger, Question((lab.run().run_id,), split=lab.config.train.evaluation.split))
    record_reads(lab.ledger, found, purpose="selection", reader="demo")
    append(lab.ledger, measured_events(lab.ledger, found))
    return found


def learning_table(found: Evaluation) -> Table:
    """Success before and after each stage with intervals, and the fixed rules on the same tasks."""
    level = f"{found.question.level:.0%}"
    title = "Success on tasks that nobody trained on"
    table = Table(title=title, caption=f"interval: {level}, clustered by task", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("policy", "T", "success", "interval", "reward", "measured"):
        table.add_column(column, justify="left" if column == "policy" else "right", no_wrap=True)
    for cell in found.cells:
        success = cell.estimates["success"]
        temperature = "" if cell.key.temperature is None else f"{cell.key.temperature:g}"
        measured = f"{cell.counts.measured}/{cell.counts.expected}"
        table.add_row(
            _name(cell), temperature, _number(success.value), _interval(success), _number(cell.estimates["reward"].value), measured
        )
    return table


def gain_lines(ledger: LedgerHandle, found: Evaluation) -> list[str]:
    """The gain in success by stage, one line a temperature."""
    lines = []
    for place, parts in gains(ledger, found):
        said = ", ".join(f"{part.name} {_number(part.value)} ({_interval(part)})" for part in parts if part.value is not None)
        lines.append(f"gain in success at T = {place['temperature']:g}: {said}")
    return lines


def _rounds(lab: Lab, screen: Shown) -> StageReport:
    since = lab.ledger.barrier()
    done = trainer.train(lab, open_sampler, progress=screen.progress)
    return StageReport(since, lab.ledger.barrier(), {"updates": len(done), "new": sum(item.new for item in done)})


def _warm(lab: Lab, server: VllmEngine, screen: Shown) -> threading.Thread | None:
    """Start the server with the imitated policy, which takes about as long as the rounds; None when its rollouts are there already."""
    training = Training(lab)
    chain = training.chain()
    if len(chain) == len(training.places) and evaluations.is_sampled_through_server(lab, SERVED_TASKS):
        return None
    version, folder = chain[-1].after, training.folder(chain[-1].after)

    def start() -> None:
        try:
            server.serve(folder, version)
        except TallyError as error:
            screen.say(f"the model server did not start yet: {error}")

    thread = threading.Thread(target=start, name="tally-engine", daemon=True)
    thread.start()
    return thread


def _name(cell: Cell) -> str:
    if cell.scripted:
        return f"rule: {cell.key.policy}"
    served = " (served by vLLM)" if cell.key.policy.endswith("-served") else ""
    return f"after {cell.stage or '?'}{served}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _interval(found: Estimate) -> str:
    return "–" if found.low is None or found.high is None else f"{found.low:.3f} to {found.high:.3f}"
