"""Tables and the chart say what they are given, with denominators, and take text as text."""

import base64
import xml.etree.ElementTree as ET

from ledger.queries import MissingRewards, OutcomeSummary
from ledger.queries_rows import all_counts
from pipelines.figures import counts_table, markdown_table, missing_table, outcome_chart, outcome_table

HALF = OutcomeSummary({"policy": "p<&>", "world": "w"}, all_counts({"succeeded": 1, "task_failed": 1, "unknown": 2}), 3, 2, 0.5)


def test_a_cell_cannot_end_its_row() -> None:
    assert markdown_table(["a"], [["x|y\nz\\"]]) == "| a |\n| --- |\n| x\\|y z\\\\ |"


def test_the_denominator_of_success_leaves_out_what_was_not_judged() -> None:
    header, _, row = outcome_table([HALF]).splitlines()
    names = (
        "policy | world | succeeded | task_failed | unknown | rollouts | succeeded / judged | succeeded / all | mean reward | superseded"
    )
    assert header == f"| {names} |"
    assert row == "| p<&> | w | 1 | 1 | 2 | 4 | 1 / 2 | 1 / 4 | 0.500 of 2 | 3 |"


def test_a_mean_over_no_reward_is_missing_and_not_zero() -> None:
    none = OutcomeSummary({"policy": "p", "world": "w"}, all_counts({"env_failed": 1}), 0, 0, None)
    assert "| 0 / 0 | 0 / 1 | missing |" in outcome_table([none])


def test_bars_are_as_long_as_their_share_and_names_are_escaped() -> None:
    svg = ET.fromstring(base64.b64decode(outcome_chart([HALF]).partition("base64,")[2].rstrip(")")))
    bars = [
        float(element.attrib["width"]) for element in svg.iter() if element.tag.endswith("rect") and element.attrib.get("height") == "18"
    ]
    assert bars == [123.0, 123.0, 246.0]
    assert "p<&> · w (4)" in [element.text for element in svg.iter()]


def test_a_chart_of_nothing_is_still_an_image() -> None:
    ET.fromstring(base64.b64decode(outcome_chart([]).partition("base64,")[2].rstrip(")")))


def test_no_missing_reward_and_no_event_are_said_in_words() -> None:
    assert missing_table([]) == "No reward is missing."
    assert counts_table({}, "event") == "None."
    assert "| env_failed | env_failed | 2 |" in missing_table([MissingRewards("env_failed", True, "env_failed", 2)])
