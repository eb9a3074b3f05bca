"""Learning curves as a picture: success and reward by update or round with intervals, and the gain split by stage. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import BytesIO
from typing import TYPE_CHECKING, Any

from audit.evaluation import Evaluation
from audit.evaluation_compare import gain_split
from audit.evaluation_spent import chains
from audit.statistics import Estimate
from ledger.errors import StatisticRefused
from ledger.ledger import LedgerHandle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = ("#1565c0", "#2e7d32", "#ef6c00", "#6a1b9a", "#c62828", "#00838f")
_DPI = 110


@dataclass(frozen=True)
class CurvePoint:
    """One measured model version on a curve.

    Attributes:
        curve: name of the curve, such as a slice with its temperature.
        at: place on the axis: the round, or the update.
        success, reward: estimates; one without a value leaves a gap.
        stage: of training, which names the first point of each stage on the axis.
    """

    curve: str
    at: int
    success: Estimate
    reward: Estimate
    stage: str = ""


@dataclass(frozen=True)
class Figure:
    """What a picture shows beside the curves.

    Attributes:
        title: above it.
        axis: name of the places on the axis.
        rules: fixed rule to its success rate, each a dashed line.
        split: curve to its parts of the gain, as `increments` gives them.
    """

    title: str = ""
    axis: str = "update"
    rules: Mapping[str, float] = field(default_factory=dict)
    split: Mapping[str, Sequence[Estimate]] = field(default_factory=dict)


def learning_curve_png(points: Sequence[CurvePoint], figure: Figure = Figure()) -> bytes:
    """A PNG with success and reward over the updates or rounds, intervals as bands, and bars of the split gain where there is one.

    Raises:
        StatisticRefused: there is no point.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    if not points:
        raise StatisticRefused("a learning curve has 0 points; allowed: 1 or more")
    panels = 3 if figure.split else 2
    canvas = Canvas(figsize=(4.6 * panels, 3.6), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    axes: Any = canvas.subplots(1, panels)
    for place, what in enumerate(("success", "reward")):
        _curves(axes[place], points, what, figure)
    for number, (rule, rate) in enumerate(figure.rules.items()):
        axes[0].axhline(rate, linestyle=(0, (4, 2 + number)), linewidth=1, color="#757575")
        axes[0].annotate(rule, (1, rate), xycoords=("axes fraction", "data"), fontsize=7, ha="right", va="bottom", color="#616161")
    if figure.split:
        _split(axes[2], figure.split)
    canvas.suptitle(figure.title, fontsize=10)
    out = BytesIO()
    canvas.savefig(out, format="png", metadata={"Software": "tallystick"})
    return out.getvalue()


def curve_points(evaluation: Evaluation) -> tuple[list[CurvePoint], dict[str, float]]:
    """The points of all learned policies, in the order of their training, and the success of each fixed rule in the first slice.

    A version is placed by the step at which its run published it, or in order where none says so.
    """
    learned = [cell for cell in evaluation.cells if not cell.scripted]
    several = len({cell.key.run_id for cell in learned}) > 1
    points, seen = list[CurvePoint](), dict[str, int]()
    for cell in learned:
        temperature = "" if cell.key.temperature is None else f", T = {cell.key.temperature:g}"
        curve = f"{cell.key.slice}{temperature}" + (f", seed {cell.seed}" if several else "")
        at = seen[curve] = seen.get(curve, -1) + 1
        place = at if cell.step is None else cell.step
        points.append(CurvePoint(curve, place, cell.estimates["success"], cell.estimates["reward"], cell.stage or ""))
    first = learned[0].key.slice if learned else None
    rules = {cell.key.policy: cell.estimates["success"].value for cell in evaluation.cells if cell.scripted and cell.key.slice == first}
    return points, {name: value for name, value in rules.items() if value is not None}


def _curves(axes: "Axes", points: Sequence[CurvePoint], what: str, figure: Figure) -> None:
    from matplotlib.ticker import MaxNLocator

    for number, curve in enumerate(dict.fromkeys(point.curve for point in points)):
        mine = sorted((point for point in points if point.curve == curve), key=lambda point: point.at)
        told = [(point.at, getattr(point, what)) for point in mine]
        known = [(at, estimate) for at, estimate in told if estimate.value is not None]
        colour = _COLOURS[number % len(_COLOURS)]
        axes.plot([at for at, _ in known], [estimate.value for _, estimate in known], color=colour, marker="o", markersize=3, label=curve)
        banded = [(at, estimate) for at, estimate in known if estimate.low is not None and estimate.high is not None]
        lows, highs = [estimate.low for _, estimate in banded], [estimate.high for _, estimate in banded]
        axes.fill_between([at for at, _ in banded], lows, highs, color=colour, alpha=0.15, linewidth=0)
        if len(banded) == 1:
            axes.vlines(banded[0][0], lows, highs, color=colour, linewidth=1)
    level = next((point.success.level for point in points if point.success.level is not None), None)
    axes.set_title(what if level is None else f"{what}, {level:.0%} intervals", fontsize=9)
    starts: dict[str, int] = {}
    for point in sorted(points, key=lambda point: point.at):
        if point.stage:
            starts.setdefault(point.stage, point.at)
    axes.set_xlabel(
        figure.axis + (f" (first of {', '.join(f'{stage}: {at}' for stage, at in starts.items())})" if starts else ""), fontsize=8
    )
    if what == "success":
        axes.set_ylim(-0.03, 1.03)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.tick_params(labelsize=7)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="best")


def _split(axes: "Axes", split: Mapping[str, Sequence[Estimate]]) -> None:
    stages = list(dict.fromkeys(item.name for parts in split.values() for item in parts if item.name.startswith("increment:")))
    width = 0.8 / max(len(stages) + 1, 1)
    for number, name in enumerate([*stages, "total"]):
        told = [(row, item) for row, parts in enumerate(split.values()) for item in parts if item.name == name and item.value is not None]
        at, heights = [row + number * width for row, _ in told], [item.value or 0.0 for _, item in told]
        below = [0.0 if item.low is None else max(0.0, (item.value or 0.0) - item.low) for _, item in told]
        above = [0.0 if item.high is None else max(0.0, item.high - (item.value or 0.0)) for _, item in told]
        axes.bar(at, heights, width, yerr=[below, above], label=name.removeprefix("increment:"), color=_COLOURS[number % len(_COLOURS)],
                 error_kw={"linewidth": 1, "capsize": 2})  # fmt: skip
    axes.set_xticks([row + width * len(stages) / 2 for row in range(len(split))], list(split), fontsize=7)
    axes.axhline(0, color="black", linewidth=0.6)
    axes.set_title("gain in success by stage", fontsize=9)
    axes.tick_params(labelsize=7)
    axes.legend(fontsize=7)


def gains(ledger: LedgerHandle, evaluation: Evaluation) -> list[tuple[dict[str, Any], tuple[Estimate, ...]]]:
    """The split of the gain by stage, at every slice, split and temperature at which the chains of all runs that have one were measured."""
    learned = [item for item in evaluation.cells if not item.scripted]
    found = []
    for place in dict.fromkeys((item.key.slice, item.key.split, item.key.temperature) for item in learned):
        there = [item for item in learned if (item.key.slice, item.key.split, item.key.temperature) == place and item.measured]
        chain = chains(ledger, evaluation.runs, frozenset(item.key.model_version for item in there))
        if chain:
            named = {"slice": place[0], "split": place[1], "temperature": place[2], "chains": chain}
            found.append((named, gain_split(evaluation, chain, slice=place[0], temperature=place[2])))
    return found


def curve_png(evaluation: Evaluation, parts: Sequence[tuple[dict[str, Any], tuple[Estimate, ...]]]) -> bytes:
    """The learning curves of an evaluation as a PNG, with the fixed rules and the split of the gain."""
    points, rules = curve_points(evaluation)
    split = {f"{place['slice']}, T = {place['temperature']}": found for place, found in parts}
    title = ", ".join(f"{run.name} seed {run.root_seed}" for run in evaluation.runs)
    return learning_curve_png(points, Figure(title, rules=rules, split=split))
