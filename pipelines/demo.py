"""The demo: the path from a task to a traced reward, and from rewards to a policy; run again, it adds nothing. Starts processes."""

import importlib.util
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from audit import bundle_stages
from ledger import embedded, queries
from ledger.connect import connect
from ledger.errors import EngineFailed
from ledger.outcome import OUTCOMES
from ledger.queries_rows import Filter, OutcomeSummary
from ledger.seal import seal_now
from ledger.settings import Settings
from pipelines import SHIPPED
from training import stages
from training.lab import SMOLLM2, Lab
from training.rollout import engine
from training.run_config import RunConfig, read_run_config

_SHORT = {
    "running": "running",
    "succeeded": "passed",
    "task_failed": "failed",
    "limit_ended": "limit",
    "env_failed": "env",
    "verifier_failed": "verifier",
    "harness_failed": "harness",
    "aborted": "aborted",
    "unknown": "unknown",
}


class Screen:
    """Progress bars and lines on a terminal."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._bars: dict[str, TaskID] = {}
        self._progress = Progress(
            SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        )

    @contextmanager
    def live(self) -> Iterator[None]:
        """Show the bars while the block runs."""
        with self._progress:
            yield

    def say(self, line: str) -> None:
        """Print one line above the bars."""
        self.console.print(f"  {line}", markup=False, highlight=False)

    def progress(self, what: str, done: int, total: int) -> None:
        """Advance the bar named `what`."""
        if what not in self._bars:
            self._bars[what] = self._progress.add_task(what, total=total)
        self._progress.advance(self._bars[what], done)


def run_demo(settings: Settings, configs: Sequence[RunConfig], console: Console, *, with_model: bool = True) -> None:
    """Run every stage of the experiments and print the tables and what to try next.

    Args:
        settings: where the ledger, the models and the wheels are.
        configs: the experiments, one after the other.
        console: where to print.
        with_model: False leaves out the rollouts that need a model server.
    Raises:
        TallyError: a stage could not be done; running again goes on from there.
    """
    began = time.monotonic()
    screen = Screen(console)
    if with_model and importlib.util.find_spec("vllm") is None and any(_needs_server(config) for config in configs):
        raise EngineFailed("vLLM is not installed: install the extra `cpu` or `gpu`, or run `tally demo --without-model`")
    reward_id = None
    with connect(settings) as ledger:
        for config in configs:
            with Lab(config, ledger, settings, say=screen.say) as lab, screen.live():
                summary = _collect(lab, screen, with_model=with_model) if config.collect else None
                told = None if config.train is None else _trained(lab, screen, with_model=with_model)
            if summary is not None:
                console.print(summary_table(summary))
            for part in told or ():
                console.print(part, highlight=False)
            page = queries.rewards(ledger, Filter(run_id=lab.run().run_id, policy=_shown_policy(config, with_model)), limit=1)
            reward_id = page.lines[0].reward_id if page.lines else reward_id
        sealed = seal_now(ledger, settings)
    took = f"{time.monotonic() - began:.0f} s"
    console.print(f"ledger sealed at position {sealed.size}, root {sealed.root.hex()[:16]}…; {took}", highlight=False)
    _next_steps(console, settings, reward_id)


def _collect(lab: Lab, screen: Screen, *, with_model: bool) -> list[OutcomeSummary]:
    """What came of the experiment's collections."""
    model = with_model and any(collection.policy == SMOLLM2 for collection in lab.config.collect)
    try:
        warming = _warm(lab) if model and not _sampled(lab) else None
        _stage(screen, "worlds", lambda: stages.worlds(lab))
        _stage(screen, "task bundles", lambda: stages.task_bundles(lab, progress=screen.progress))
        _stage(screen, "world checks", lambda: bundle_stages.world_checks(lab, progress=screen.progress).report)
        _stage(screen, "bundle checks", lambda: bundle_stages.bundle_checks(lab, progress=screen.progress).report)
        kept = [c.policy for c in lab.config.collect if c.policy != SMOLLM2]
        _stage(screen, "scripted rollouts", lambda: stages.rollouts(lab, policies=kept, progress=screen.progress))
        if warming is not None:
            warming.join()
        if model:
            _stage(screen, "model rollouts", lambda: stages.rollouts(lab, policies=[SMOLLM2], progress=screen.progress))
        _stage(screen, "verdicts", lambda: stages.verdicts(lab, progress=screen.progress))
        _stage(screen, "rewards", lambda: stages.rewards(lab, progress=screen.progress))
    finally:
        if model:
            lab.cool()
    queries.fresh(lab.ledger)
    return queries.outcomes(lab.ledger, Filter(run_id=lab.run().run_id))


def _trained(lab: Lab, screen: Screen, *, with_model: bool) -> list[Table | str]:
    """What training gave, for the terminal; torch is imported for experiments that train alone."""
    from pipelines.demo_training import gain_lines, learning_table, train_and_measure

    found = train_and_measure(lab, screen, partial(_stage, screen), with_model=with_model)
    return [learning_table(found), *gain_lines(lab.ledger, found)]


def _needs_server(config: RunConfig) -> bool:
    return config.train is not None or any(collection.policy == SMOLLM2 for collection in config.collect)


def _shown_policy(config: RunConfig, with_model: bool) -> str | None:
    """Whose reward the demo points to, or anybody's: the model that was sampled from a server."""
    if config.train is not None:
        return f"{config.name}-served" if with_model else config.name
    return SMOLLM2 if with_model and _needs_server(config) else None


def summary_table(summary: list[OutcomeSummary]) -> Table:
    """Policy and world against the outcomes that occurred, with the denominators that rates are over."""
    occurred = [outcome for outcome in OUTCOMES if any(row.counts[outcome] for row in summary)]
    again = ("superseded",) if any(row.superseded for row in summary) else ()
    caption = "success: passed of judged; mean: of rewards that are not null"
    table = Table(title="Counted rollouts", caption=caption, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("policy", "world", "all", *(_SHORT[outcome] for outcome in occurred), "success", "mean", "null", *again):
        words = column in ("policy", "world")
        table.add_column(column, justify="left" if words else "right", no_wrap=True)
    for row in summary:
        rate = "–" if row.success_rate is None else f"{row.counts['succeeded']}/{row.judged}"
        mean = "–" if row.mean_reward is None else f"{row.mean_reward:.3f}"
        counts = [str(row.counts[outcome]) if row.counts[outcome] else "·" for outcome in occurred]
        null = str(row.rollouts - row.rewards)
        attempts = [str(row.superseded)] if again else []
        table.add_row(str(row.key["policy"]), str(row.key["world"]), str(row.rollouts), *counts, rate, mean, null, *attempts)
    return table


def _stage(screen: Screen, name: str, work: Callable[[], stages.StageReport]) -> None:
    began = time.monotonic()
    report = work()
    counts = ", ".join(f"{count} {what}" for what, count in report.counts.items())
    screen.say(f"{name}: {counts} ({time.monotonic() - began:.0f} s)")


def _sampled(lab: Lab) -> bool:
    """Whether the model's rollouts are all there already, so that its server need not be warmed up."""
    expected = sum(c.size * len(c.tasks) for c in lab.config.collect if c.policy == SMOLLM2)
    queries.fresh(lab.ledger)
    done = queries.outcomes(lab.ledger, Filter(run_id=lab.run().run_id, policy=SMOLLM2), by=())
    return bool(done) and done[0].rollouts - done[0].counts["running"] >= expected > 0


def _warm(lab: Lab) -> threading.Thread:
    thread = threading.Thread(target=lab.warm, name="tally-engine", daemon=True)
    thread.start()
    return thread


def _next_steps(console: Console, settings: Settings, reward_id: str | None) -> None:
    lines = ["Try next:"]
    if shutil.which("tally") is None:
        lines.append(f"  . {Path(sys.executable).parent / 'activate'}      puts `tally` on the path")
    if reward_id is not None:
        lines.append(f"  tally trace {reward_id}      a reward of the model, down to its tokens")
        lines.append(f"  tally prove {reward_id}      a proof of it that anybody can check")
    lines += [
        "  tally verify                 re-derive everything, up to the signed checkpoints",
        "  tally rollouts               what was run, and how it ended",
        "  tally update list            every update of the policy; `tally update show ID` says who got how much gradient",
        "  tally evaluate desk_rl       success, costs and behaviour of every version",
        f"  tally ui                     rewards, traces, disagreements: http://127.0.0.1:{settings.ui_port}",
        f"  tally dagster                the asset graph: http://127.0.0.1:{settings.dagster_port}",
        "  tally stop                   stop the servers of this folder",
    ]
    console.print("\n".join(lines), markup=False, highlight=False, soft_wrap=True)


def demo(
    experiment: Annotated[Path | None, typer.Option(help="An experiment file; by default the demo's own two.")] = None,
    with_model: Annotated[
        bool, typer.Option("--with-model/--without-model", help="Sample a model through vLLM, or leave that out.")
    ] = True,
) -> None:
    """Walk the whole path: tasks, rollouts, verdicts, rewards, and a policy that learns from them. Running it again adds nothing."""
    paths = [SHIPPED / "demo.toml", SHIPPED / "desk_rl.toml"] if experiment is None else [experiment]
    run_demo(Settings(), [read_run_config(path) for path in paths], Console(), with_model=with_model)


def stop() -> None:
    """Stop the model server and the database of this folder."""
    settings = Settings()
    ended = {"model server": engine.stop(settings.data_dir / "engine"), "database": embedded.stop(settings.data_dir / "postgres")}
    for name, was_running in ended.items():
        typer.echo(f"{name}: {'stopped' if was_running else 'was not running'}")
