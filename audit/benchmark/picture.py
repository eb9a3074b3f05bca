"""The confusion of an attribution as a picture: true class against said class, and planted kind against said class. Pure."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

from audit.benchmark.score import CLASSES, SAID, Score
from ledger.errors import StatisticRefused

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI = 110


def confusion_png(score: Score, *, title: str = "") -> bytes:
    """A PNG with both matrices: numbers are subjects, shades are shares of a row.

    Raises:
        StatisticRefused: nothing was scored.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if not score.confusion:
        raise StatisticRefused("a confusion matrix of 0 subjects; allowed: 1 or more")
    rows = [name for name in CLASSES if any(true == name for true, _ in score.confusion)]
    kinds = list(dict.fromkeys(kind.name for kind in score.kinds if any(row == kind.name for row, _ in score.by_kind)))
    canvas = Figure(figsize=(11.5, 0.32 * max(len(kinds), len(rows), 8) + 2.4), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(canvas)
    axes: Any = canvas.subplots(1, 2)
    _matrix(axes[0], rows, score.confusion, "true class")
    _matrix(axes[1], kinds, score.by_kind, "planted kind, where it was the cause")
    canvas.suptitle(title, fontsize=10)
    out = BytesIO()
    canvas.savefig(out, format="png", metadata={"Software": "tallystick"})
    return out.getvalue()


def _matrix(axes: "Axes", rows: Sequence[str], counts: Mapping[tuple[str, str], int], title: str) -> None:
    totals = {row: sum(counts.get((row, said), 0) for said in SAID) for row in rows}
    shares = [[counts.get((row, said), 0) / max(totals[row], 1) for said in SAID] for row in rows] or [[0.0] * len(SAID)]
    axes.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0, aspect="auto")
    for y, row in enumerate(rows):
        for x, said in enumerate(SAID):
            count = counts.get((row, said), 0)
            if count:
                axes.text(x, y, str(count), ha="center", va="center", fontsize=7, color="white" if shares[y][x] > 0.55 else "black")
    axes.set_xticks(range(len(SAID)), SAID, fontsize=7, rotation=35, ha="right")
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.set_xlabel("said", fontsize=8)
    axes.set_title(title, fontsize=9)
