"""Datasheets and counterexamples as tables. Writes to the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from audit.verifier_regression import Counterexample
from ledger.terminal import cell, table

_KINDS = 40


def print_datasheet(out: Console, sheet: Mapping[str, Any]) -> None:
    """Print a datasheet: scores, checks, gaps, lineage, agreement, counterexamples, and the command that makes it again."""
    out.print(cell(f"verifier {sheet['name']} {sheet['verifier_id'][:12]} ({sheet['verifier_kind']})", "bold"))
    out.print(cell(f"tried on {sheet['tasks']} tasks, seed {sheet['seed']}: {sheet['mutants']} mutants, {sheet['right_ends']} right ends"))
    score = sheet["kill_score"]
    out.print(cell(f"kill score {'-' if score is None else f'{score:.4f}'}; undecided {sheet['undecided']}"))
    for name in ("false_positive_rate", "false_negative_rate"):
        out.print(cell(f"{name.replace('_', ' ')} {rate(sheet[name])}"))
    rows = [[item["check_id"], item["status"], item["reason"]] for item in sheet["checks"]]
    out.print(table(["check", "status", "reason"], rows))
    if sheet["gaps"]:
        out.print(table(
            ["gap", "wrongly", "of this kind", "smallest in task"],
            [[gap["kind"], gap["wrongly"], f"{gap['count']}/{gap['of']}", gap["task"]] for gap in sheet["gaps"][:_KINDS]],
            title="what it gets wrong",
        ))  # fmt: skip
    lineage = sheet["label_lineage"]
    out.print(table(
        ["labels given by", "ends", "number"], [[item["labelled_by"], item["sort"], item["ends"]] for item in lineage["trials"]],
        title=f"label lineage: of recorded rollouts {lineage['people']} judged by people too, {lineage['programs']} pairs with programs,"
        f" {lineage['judges']} with judges",
    ))  # fmt: skip
    if sheet["agreement"]:
        out.print(table(["other", "kind", "rollouts", "agree", "Cohen's kappa", "passed by this one alone", "by the other alone"], [
            [a["other"], a["other_kind"], a["rollouts"], f"{a['share']:.3f}", "-" if a["kappa"] is None else f"{a['kappa']:.3f}",
             a["only_this"], a["only_other"]]
            for a in sheet["agreement"]
        ], title="agreement on recorded rollouts"))  # fmt: skip
    for item in sheet["calibration"]:
        out.print(cell(f"where it says {item['said']}, people pass {rate(item)}"))
    out.print(cell(sheet["calibration_note"], "dim"))
    if sheet["counterexamples"]:
        rows = [[item["id"][:12], item["state"], item["kind"], item["label"], item["found_in"][:12]] for item in sheet["counterexamples"]]
        out.print(table(["counterexample", "state", "kind", "label", "found in"], rows))
    for reason, count in sheet["left_out"].items():
        out.print(cell(f"left out: {count} {reason}"))
    out.print(cell(f"again: {sheet['command']}"), soft_wrap=True)


def rate(estimate: Mapping[str, Any]) -> str:
    """A share with its interval as text."""
    if estimate["value"] is None:
        return "-"
    interval = "" if estimate["low"] is None else f" [{estimate['low']:.4f}, {estimate['high']:.4f}] at {estimate['level']}"
    return f"{estimate['value']:.4f}{interval} of {estimate['n']} ({estimate['method']})"


def print_counterexamples(out: Console, found: Sequence[Counterexample]) -> None:
    """Print counterexamples, one a line."""
    if not found:
        out.print("no counterexample was proposed")
        return
    out.print(table(["id", "verifier", "state", "kind", "task", "label", "found in"], [
        [item.artifact_id, item.verifier, item.state, item.kind, item.task, "right" if item.right else "wrong", item.found_in[:12]]
        for item in found
    ]))  # fmt: skip


def print_counterexample(out: Console, item: Counterexample) -> None:
    """Print what a verifier was shown and what it made of it."""
    label = "right" if item.right else "wrong"
    out.print(cell(f"counterexample {item.artifact_id} of {item.verifier}: {item.state}", "bold"), soft_wrap=True)
    out.print(cell(f"{item.kind} of {item.task}, labelled {label} by {item.content['labelled_by']}, {item.content['wrongly']}"))
    rows = [[step["name"], step["arguments"], step["content"][:200]] for step in item.content["artefact"]["trace"]]
    out.print(table(["call", "arguments", "answer"], rows))
