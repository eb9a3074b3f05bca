from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from audit.evaluation import Question, evaluate
from audit.evaluation_curves import CurvePoint, Figure, curve_points, learning_curve_png
from audit.statistics import Estimate
from ledger.errors import StatisticRefused
from ledger.ledger import LedgerHandle
from tests.evaluation_histories import EvaluatedRun


def estimate(value: float | None, half: float = 0.1, name: str = "success") -> Estimate:
    ends = (None, None) if value is None else (value - half, value + half)
    return Estimate(name, value, *ends, 0.95, 10, "test", "share")


def points(values) -> list[CurvePoint]:
    return [CurvePoint("instances", at, estimate(value), estimate(value), "rl") for at, value in enumerate(values)]


def pixels(png: bytes) -> np.ndarray:
    return np.asarray(Image.open(BytesIO(png)).convert("RGB"), dtype=int)


def blue(png: bytes) -> tuple[float, int]:
    """Mean row of the curve's pixels in the first panel, and how many there are."""
    image = pixels(png)
    image = image[:, : image.shape[1] // 2]
    rows, _ = np.nonzero(np.abs(image - np.array([0x15, 0x65, 0xC0])).sum(axis=2) < 12)
    return float(rows.mean()), len(rows)


def test_a_higher_curve_is_drawn_higher_and_the_same_points_give_the_same_bytes() -> None:
    low, high = learning_curve_png(points([0.1] * 5)), learning_curve_png(points([0.9] * 5))
    assert low.startswith(b"\x89PNG") and blue(high)[0] < blue(low)[0] - 50
    assert learning_curve_png(points([0.1] * 5)) == low


def test_a_point_without_a_value_is_a_gap_and_no_zero() -> None:
    assert learning_curve_png(points([0.9, None, 0.9])) != learning_curve_png(points([0.9, 0.0, 0.9]))
    assert abs(blue(learning_curve_png(points([0.9, None, 0.9])))[0] - blue(learning_curve_png(points([0.9, 0.9, 0.9])))[0]) < 10


def test_fixed_rules_and_the_split_gain_are_drawn_beside() -> None:
    plain = learning_curve_png(points([0.2, 0.4]))
    assert learning_curve_png(points([0.2, 0.4]), Figure(rules={"mail everyone": 0.41})) != plain
    parts = [estimate(0.5, name="total"), estimate(0.2, name="increment:sft"), estimate(0.3, name="increment:rl")]
    assert pixels(learning_curve_png(points([0.2, 0.4]), Figure(split={"instances": parts}))).shape[1] == pytest.approx(
        1.5 * pixels(plain).shape[1], abs=2
    )


def test_no_points_are_refused() -> None:
    with pytest.raises(StatisticRefused, match="has 0 points"):
        learning_curve_png([])


def test_points_of_an_evaluation_stand_at_their_steps(ledger: LedgerHandle) -> None:
    run = EvaluatedRun(ledger)
    for step, passed in ((5, True), (2, False)):
        run.measure("tiny", run.version(f"tiny-{step}", stage="rl", step=step), [[passed]])
    run.measure("mail", run.version("scripted-mail", scripted=True), [[True]], temperature=None)
    found, rules = curve_points(evaluate(ledger, Question((run.run_id,))))
    assert [(point.curve, point.at, point.success.value) for point in found] == [("instances, T = 1", 2, 0.0), ("instances, T = 1", 5, 1.0)]
    assert rules == {"mail": 1.0}
