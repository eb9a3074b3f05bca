"""The learning study: seeds that each pretrain, imitate and reinforce, beside shuffled rewards and more imitation. Writes a ledger.

`python -m tests.benchmarks.learning_study --seeds 5` runs everything in this folder's ledger and prints the numbers; run again, it goes
on from where it was. Arms of one seed share their copying and imitation: the control arms start from its weights.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from audit import bundle_stages
from audit.behaviour import behaviours
from audit.evaluation import Evaluation, Question, evaluate
from audit.evaluation_compare import Comparison, compare
from audit.evaluation_record import append, compared_events, measured_events, record_reads
from audit.statistics import Estimate
from ledger.connect import connect
from ledger.ledger import LedgerHandle
from ledger.settings import Settings
from pipelines import SHIPPED
from training import stages
from training.lab import Lab
from training.optimise import evaluations, trainer
from training.optimise.opened import Training
from training.optimise.samplers import open_sampler
from training.run_config import RunConfig, TaskSource, read_run_config
from training.train_config import PolicyTable, ReinforceStage, SupervisedStage

ARMS = ("rl", "shuffled", "imitation")
TIMES = "learning_study.json"
"""CPU seconds by seed and arm, over all processes that a part took."""


def configured(base: RunConfig, seed: int, options: argparse.Namespace) -> RunConfig:
    """The experiment of a seed, measured on test tasks of all slices."""
    assert base.train is not None
    *sources, measured = base.tasks
    for name in options.slices:
        chosen = {**measured.options, "split": "test", "slice": name}
        count = options.tasks if name == "instances" else options.apart
        sources.append(TaskSource.model_validate({**measured.model_dump(), "count": count, "options": chosen}))
    asked = {"split": "test", "tasks": options.tasks, "apart_tasks": options.apart, "slices": tuple(options.slices)}
    evaluation = base.train.evaluation.model_copy(update=asked)
    train = base.train.model_copy(update={"evaluation": evaluation})
    return base.model_copy(update={"seed": seed, "tasks": tuple(sources), "train": train})


def control(config: RunConfig, arm: str, start: Path, steps: int) -> RunConfig:
    """A control arm: from the imitated policy on, with shuffled rewards or with more imitation."""
    assert config.train is not None
    policy = PolicyTable(source="folder", folder=str(start))
    wanted = ReinforceStage if arm == "shuffled" else SupervisedStage
    stage = next(stage for stage in config.train.stages if isinstance(stage, wanted))
    change: dict[str, Any] = {"shuffled_rewards": True} if arm == "shuffled" else {"steps": steps}
    evaluation = config.train.evaluation.model_copy(update={"slices": ("instances",)})
    asked = {"policy": policy, "stages": (stage.model_copy(update=change),), "evaluation": evaluation}
    train = config.train.model_copy(update=asked)
    return config.model_copy(update={"name": f"{config.name}_{arm}", "train": train})


def run_part(settings: Settings, config: RunConfig, part: str, say: Any) -> None:
    """The RL arm of a seed with what comes before it, or its control arms, trained and measured."""
    with connect(settings) as ledger:
        with Lab(config, ledger, settings) as lab:
            if part == "rl":
                prepared(lab)
                spent = timed(settings, config.seed, "sft", lambda: trainer.train(lab, open_sampler, until=_end(lab, "sft")))
                cpu_s = timed(settings, config.seed, "rl", lambda: trainer.train(lab, open_sampler))
                measured(lab, ("sft", "rl"), fixed=config.seed == 1)
                say(f"seed {config.seed}: sft {spent:.0f} cpu s, rl {cpu_s:.0f} cpu s")
                return
            training = Training(lab)
            steps, start = _steps(settings, training, config.seed), training.folder(_last(training, "sft"))
        for arm in ARMS[1:]:
            with Lab(control(config, arm, start, steps), ledger, settings) as lab:
                prepared(lab)
                timed(settings, config.seed, arm, lambda lab=lab: trainer.train(lab, open_sampler))
                measured(lab, ("rl" if arm == "shuffled" else "sft",))
                say(f"seed {config.seed}: {arm} {read_times(settings).get(f'{config.seed}/{arm}', 0):.0f} cpu s")


def in_processes(command: Sequence[str], seeds: Sequence[int], count: int) -> None:
    """Both parts of all seeds, so many processes at a time; the control arms of a seed after its RL arm."""
    waiting = [(seed, "rl") for seed in seeds]
    running: dict[tuple[int, str], subprocess.Popen[bytes]] = {}
    while waiting or running:
        for (seed, part), process in list(running.items()):
            code = process.poll()
            if code is None:
                continue
            del running[seed, part]
            if code:
                raise SystemExit(f"seed {seed}, {part}: the process ended with {code}; run again to go on")
            if part == "rl":
                waiting.append((seed, "controls"))
        while waiting and len(running) < count:
            seed, part = waiting.pop(0)
            running[seed, part] = subprocess.Popen([*command, "--only", str(seed), "--part", part])
        time.sleep(0.5)


def prepared(lab: Lab) -> None:
    """Tasks sealed and gated, traces recorded, copying learnt."""
    gated(lab)
    trainer.supervised_traces(lab)
    training = Training(lab)
    first = next((place for place in training.places if place.stage.stage == "copy" and place.index + 1 == place.of), None)
    if first is not None and training.done(first) is None:
        trainer.train(lab, open_sampler, until=first)


def gated(lab: Lab) -> None:
    """Tasks sealed and looked at by the gates; those of one seed are those of all."""
    stages.worlds(lab)
    stages.task_bundles(lab)
    bundle_stages.world_checks(lab)
    bundle_stages.bundle_checks(lab)


def measured(lab: Lab, labels: Sequence[str], *, fixed: bool = False) -> None:
    """The versions at the ends of stages measured, and once the fixed rules."""
    with open_sampler(lab) as sampler:
        for label in labels:
            evaluations.evaluate_version(lab, label, sampler)
    if fixed:
        evaluations.evaluate_fixed_rules(lab)


def timed(settings: Settings, seed: int, arm: str, work: Any) -> float:
    """CPU seconds of the work, kept in a file; those of a work that was broken off by a signal are counted when it goes on."""
    path, key = settings.data_dir / f"{seed}.{TIMES}", f"{seed}/{arm}"
    known = json.loads(path.read_text()) if path.exists() else {}
    if key in known:
        work()
        return float(known[key])
    began, before = time.process_time(), float(known.pop(f"{key} so far", 0.0))
    whole = False
    try:
        work()
        whole = True
    finally:
        spent = before + time.process_time() - began
        path.write_text(json.dumps({**known, key if whole else f"{key} so far": spent}))
    return spent


def read_times(settings: Settings) -> dict[str, float]:
    """CPU seconds by seed and arm."""
    return {key: value for path in settings.data_dir.glob(f"*.{TIMES}") for key, value in json.loads(path.read_text()).items()}


def report(settings: Settings, configs: Sequence[RunConfig]) -> Iterator[str]:
    """The numbers of the study, as lines of Markdown; what is measured is appended as events."""
    with connect(settings) as ledger:
        found, finals = _measured(settings, ledger, configs)
        yield "| policy | slice | T | seed | success | 95 % interval | reward | measured |\n|---|---|---|---|---|---|---|---|"
        for cell in found.cells:
            success, reward = cell.estimates["success"], cell.estimates["reward"]
            who = cell.key.policy if cell.scripted else f"{_arm(finals, cell.key.model_version)}"
            temperature = "" if cell.key.temperature is None else f"{cell.key.temperature:g}"
            interval = f"{_number(success.low)} to {_number(success.high)}"
            row = (
                who,
                cell.key.slice,
                temperature,
                cell.seed,
                _number(success.value),
                interval,
                _number(reward.value),
                cell.counts.measured,
            )
            yield f"| {' | '.join(map(str, row))} |"
        yield "\n| gain | slice | T | mean over seeds | 95 % interval | caveats |\n|---|---|---|---|---|---|"
        for name, before in (("RL − SFT", "sft"), ("RL − shuffled rewards", "shuffled"), ("RL − more imitation", "imitation")):
            pairs = [(finals[seed][before], finals[seed]["rl"]) for seed in finals]
            comparisons = compare(found, pairs, axis="cpu_s" if before == "imitation" else "rollouts" if before == "shuffled" else "tasks")
            append(ledger, compared_events(ledger, comparisons))
            for item in comparisons:
                yield _gain(name, item)
        yield "\n| policy | condition | wanted | acted |\n|---|---|---|---|"
        for told in behaviours(ledger, [cell for cell in found.cells if cell.key.temperature in (0.0, None)]):
            who = told.key.policy if told.scripted else _arm(finals, told.key.model_version)
            for count in told.counts:
                yield f"| {who} of {told.key.run_id[:8]} | {count.condition} | {count.wanted} | {count.acted}/{count.total} |"


def _measured(settings: Settings, ledger: LedgerHandle, configs: Sequence[RunConfig]) -> tuple[Evaluation, dict[int, dict[str, str]]]:
    finals: dict[int, dict[str, str]] = {}
    runs: list[str] = []
    for config in configs:
        with Lab(config, ledger, settings) as lab:
            training = Training(lab)
            finals[config.seed] = {"sft": _last(training, "sft"), "rl": _last(training, "rl")}
            start = training.folder(finals[config.seed]["sft"])
            runs.append(training.run_id)
            steps = _steps(settings, training, config.seed)
        for arm in ARMS[1:]:
            with Lab(control(config, arm, start, steps), ledger, settings) as lab:
                training = Training(lab)
                finals[config.seed][arm] = training.chain()[-1].after
                runs.append(training.run_id)
    found = evaluate(ledger, Question(tuple(runs), split="test"))
    record_reads(ledger, found, purpose="report", reader="learning-study")
    append(ledger, measured_events(ledger, found))
    return found, finals


def _steps(settings: Settings, training: Training, seed: int) -> int:
    times = read_times(settings)
    steps = sum(place.stage.steps for place in training.places if place.stage.stage == "supervised" and place.index == 0)
    return max(1, round(times[f"{seed}/rl"] / (times[f"{seed}/sft"] / steps)))


def _gain(name: str, item: Comparison) -> str:
    gain: Estimate = item.success_gain
    temperature = "" if item.temperature is None else f"{item.temperature:g}"
    caveats = "; ".join(gain.caveats)
    return f"| {name} | {item.slice} | {temperature} | {_number(gain.value)} | {_number(gain.low)} to {_number(gain.high)} | {caveats} |"


def _arm(finals: dict[int, dict[str, str]], version: str) -> str:
    return next((arm for arms in finals.values() for arm, name in arms.items() if name == version), version)


def _number(value: float | None) -> str:
    return "missing" if value is None else f"{value:.3f}"


def _end(lab: Lab, stage: str) -> Any:
    return next(place for place in reversed(Training(lab).places) if place.stage.name == stage)


def _last(training: Training, stage: str) -> str:
    return next(update.after for update in reversed(training.chain()) if update.place.stage.name == stage)


def main() -> None:
    """Run the seeds, several processes at a time, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiment", type=Path, default=SHIPPED / "desk_study.toml")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--slices", nargs="+", default=["instances", "families", "wordings", "names"])
    parser.add_argument("--apart", type=int, default=60, help="test tasks of each slice but instances")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--only", type=int, help="run a part of this seed here, without a report")
    parser.add_argument("--part", choices=("rl", "controls"), default="rl")
    parser.add_argument("--report", action="store_true", help="print the report alone")
    options = parser.parse_args()
    # The processes of a seed's own would be left out of its CPU time.
    settings, base = Settings(processes=1) if options.only else Settings(), read_run_config(options.experiment)
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    if options.only:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        run_part(settings, configured(base, options.only, options), options.part, lambda line: print(line, flush=True))
        return
    seeds = range(1, options.seeds + 1)
    configs = [configured(base, seed, options) for seed in seeds]
    if not options.report:
        with connect(settings) as ledger, Lab(configs[0], ledger, settings) as lab:
            gated(lab)
        in_processes([sys.executable, "-m", "tests.benchmarks.learning_study", *sys.argv[1:]], seeds, options.processes)
    print("\n".join(report(settings, configs)))


if __name__ == "__main__":
    main()
