"""A datasheet as one HTML page without scripts and without anything from elsewhere. Pure."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from audit.verifier_tables import rate
from ledger.terminal import plain

_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:70rem;padding:0 1rem;color:#1d1d1f}"
    "table{border-collapse:collapse;margin:.5rem 0 1.5rem}th,td{text-align:left;padding:.25rem .75rem;border-bottom:1px solid #ddd;"
    "vertical-align:top}code{background:#f4f4f5;padding:.1rem .3rem}.fail,.error{color:#b00020}.pass{color:#146c2e}.skip{color:#777}"
)


def datasheet_html(sheet: Mapping[str, Any]) -> str:
    """The page; foreign text is escaped."""
    lineage = sheet["label_lineage"]
    score = "-" if sheet["kill_score"] is None else f"{sheet['kill_score']:.4f}"
    parts = [
        f"<h1>Verifier {_text(sheet['name'])}</h1>",
        f"<p>Version <code>{_text(sheet['verifier_id'])}</code>, {_text(sheet['verifier_kind'])}. Tried on {sheet['tasks']} tasks, seed"
        f" {sheet['seed']}: {sheet['mutants']} mutants and {sheet['right_ends']} right ends; {sheet['undecided']} undecided.</p>",
        _table("Scores", ("", "value"), [
            ("kill score", score), ("false-positive rate", rate(sheet["false_positive_rate"])),
            ("false-negative rate", rate(sheet["false_negative_rate"])),
        ]),
        _table("Checks", ("check", "status", "reason", "remedy"),
               [(item["check_id"], item["status"], item["reason"], item["remedy"]) for item in sheet["checks"]], marked=1),
        _table("Known gaps", ("kind", "wrongly", "of this kind", "smallest in task"),
               [(gap["kind"], gap["wrongly"], f"{gap['count']}/{gap['of']}", gap["task"]) for gap in sheet["gaps"]]),
        _table("Mutants by kind", ("kind", "rejected", "tried"),
               [(kind, found["rejected"], found["of"]) for kind, found in sheet["per_kind"].items()]),
        _table("Label lineage", ("labels given by", "ends", "number"),
               [(item["labelled_by"], item["sort"], item["ends"]) for item in lineage["trials"]]),
        f"<p>Of recorded rollouts {lineage['people']} were judged by people too; {lineage['programs']} pairs with programs,"
        f" {lineage['judges']} with judges.</p>",
        _table("Agreement on recorded rollouts", ("other", "kind", "rollouts", "agree", "Cohen's kappa", "this one alone", "other alone"), [
            (a["other"], a["other_kind"], a["rollouts"], f"{a['share']:.3f}", "-" if a["kappa"] is None else f"{a['kappa']:.3f}",
             a["only_this"], a["only_other"]) for a in sheet["agreement"]
        ]),
        _table("Calibration", ("where it says", "people pass"), [(item["said"], rate(item)) for item in sheet["calibration"]]),
        f"<p>{_text(sheet['calibration_note'])}</p>",
        _table("Counterexamples", ("id", "state", "kind", "task", "label", "found in"), [
            (item["id"], item["state"], item["kind"], item["task"], item["label"], item["found_in"]) for item in sheet["counterexamples"]
        ]),
        _table("Left out", ("reason", "number"), list(sheet["left_out"].items())),
        f"<h2>Again</h2><p><code>{_text(sheet['command'])}</code></p>",
    ]  # fmt: skip
    title = f"Verifier {_text(sheet['name'])}"
    head = f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>{_STYLE}</style></head>'
    return f"{head}<body>{''.join(parts)}</body></html>\n"


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, marked: int | None = None) -> str:
    if not rows:
        return ""
    head = "".join(f"<th>{_text(column)}</th>" for column in columns)
    body = "".join(
        "<tr>" + "".join(f"<td{f' class={chr(34)}{_text(value)}{chr(34)}' if n == marked else ''}>{_text(value)}</td>"
                         for n, value in enumerate(row)) + "</tr>"
        for row in rows
    )  # fmt: skip
    return f"<h2>{_text(title)}</h2><table><tr>{head}</tr>{body}</table>"


def _text(value: Any) -> str:
    return escape(plain(value))
