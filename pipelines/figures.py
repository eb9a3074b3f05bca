"""Markdown tables and a bar chart for the metadata that an asset's page shows. Pure."""

from base64 import b64encode
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

from ledger.outcome import OUTCOMES
from ledger.queries import Coverage, MissingRewards, OutcomeSummary

_COLOURS: Mapping[str, str] = {
    "running": "#bdbdbd", "succeeded": "#2e7d32", "task_failed": "#c62828", "env_failed": "#6a1b9a", "verifier_failed": "#ad1457",
    "harness_failed": "#4527a0", "limit_ended": "#ef6c00", "aborted": "#455a64", "unknown": "#9e9e9e",
}  # fmt: skip
_PARTS = ("#2e7d32", "#c62828", "#9e9e9e", "#1565c0", "#ef6c00", "#6a1b9a")
_WIDTH, _LABEL, _ROW, _LEGEND = 720, 220, 26, 34


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; cells are text, with bars and line ends escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in lines)


def outcome_table(lines: Sequence[OutcomeSummary]) -> str:
    """Outcomes by policy and world with their denominators; columns of outcomes that never occur are left out."""
    shown = [outcome for outcome in OUTCOMES if any(line.counts[outcome] for line in lines)]
    header = ["policy", "world", *shown, "rollouts", "succeeded / judged", "succeeded / all", "mean reward", "superseded"]
    rows = [
        [
            line.key["policy"], line.key["world"], *(line.counts[outcome] for outcome in shown), line.rollouts,
            f"{line.counts['succeeded']} / {line.judged}", f"{line.counts['succeeded']} / {line.rollouts}", _mean(line), line.superseded,
        ]
        for line in lines
    ]  # fmt: skip
    return markdown_table(header, rows)


def coverage_table(lines: Sequence[Coverage]) -> str:
    """Slots by policy and world, expected = measured + masked + failed + omitted + unknown, and success over both denominators."""
    header = ["policy", "world", "groups", "expected", "measured", "masked", "failed", "omitted", "unknown", "of measured", "of expected"]
    rows = [
        [
            c.policy, c.world, c.groups, c.expected, c.measured, c.masked, c.failed, c.omitted, c.unknown,
            f"{c.succeeded} / {c.measured}", f"{c.succeeded} / {c.expected}",
        ]
        for c in lines
    ]  # fmt: skip
    return markdown_table(header, rows)


def missing_table(lines: Sequence[MissingRewards]) -> str:
    """Why rewards are missing, or a sentence that says none is."""
    if not lines:
        return "No reward is missing."
    return markdown_table(["why there is no number", "outcome", "rollouts"], [[m.reason, m.outcome, m.count] for m in lines])


def counts_table(counts: Mapping[str, int], name: str) -> str:
    """Named counts as a table of two columns, or a sentence that says there are none."""
    return markdown_table([name, "count"], list(counts.items())) if counts else "None."


def outcome_chart(lines: Sequence[OutcomeSummary]) -> str:
    """A Markdown image: one stacked bar of outcomes a policy and world, as long as its share of its own rollouts."""
    height = _ROW * len(lines) + _LEGEND
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">']
    parts.append(f'<rect width="{_WIDTH}" height="{height}" fill="white"/>')
    for row, line in enumerate(lines):
        parts.extend(_bar(line, row * _ROW + 4))
    at = 8
    for outcome in (outcome for outcome in OUTCOMES if any(line.counts[outcome] for line in lines)):
        y = height - 18
        parts.append(f'<rect x="{at}" y="{y}" width="11" height="11" fill="{_COLOURS[outcome]}"/>')
        parts.append(f'<text x="{at + 15}" y="{y + 10}">{outcome}</text>')
        at += 30 + 7 * len(outcome)
    return f"![outcomes](data:image/svg+xml;base64,{b64encode(''.join([*parts, '</svg>']).encode()).decode()})"


def bar_chart(what: str, bars: Mapping[str, Mapping[str, int]]) -> str:
    """A Markdown image: one stacked bar a name, all to one scale, with its counts; colours go by the order of the parts.

    Args:
        what: what is counted.
        bars: name to part to count.
    """
    parts_seen = list(dict.fromkeys(part for bar in bars.values() for part in bar))
    most = max((sum(bar.values()) for bar in bars.values()), default=0) or 1
    height, room = _ROW * len(bars) + _LEGEND, _WIDTH - _LABEL - 8
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" font-family="sans-serif" font-size="12">']
    parts.append(f'<rect width="{_WIDTH}" height="{height}" fill="white"/>')
    for row, (name, bar) in enumerate(bars.items()):
        y, at = row * _ROW + 4, float(_LABEL)
        counts = " / ".join(str(bar.get(part, 0)) for part in parts_seen)
        parts.append(f'<text x="8" y="{y + 14}">{escape(name)} ({counts})</text>')
        for part in parts_seen:
            width = room * bar.get(part, 0) / most
            if width:
                parts.append(
                    f'<rect x="{at:.1f}" y="{y}" width="{width:.1f}" height="18" fill="{_PARTS[parts_seen.index(part) % len(_PARTS)]}"/>'
                )
                at += width
    at = 8
    for index, part in enumerate(parts_seen):
        parts.append(f'<rect x="{at}" y="{height - 18}" width="11" height="11" fill="{_PARTS[index % len(_PARTS)]}"/>')
        parts.append(f'<text x="{at + 15:.0f}" y="{height - 8}">{escape(part)}</text>')
        at += 30 + 7 * len(part)
    return f"![{escape(what)}](data:image/svg+xml;base64,{b64encode(''.join([*parts, '</svg>']).encode()).decode()})"


def _bar(line: OutcomeSummary, y: int) -> list[str]:
    label = escape(f"{line.key['policy']} · {line.key['world']} ({line.rollouts})")
    parts = [f'<text x="8" y="{y + 14}">{label}</text>']
    at, room = float(_LABEL), _WIDTH - _LABEL - 8
    for outcome in OUTCOMES:
        share = room * line.counts[outcome] / max(line.rollouts, 1)
        if share:
            parts.append(f'<rect x="{at:.1f}" y="{y}" width="{share:.1f}" height="18" fill="{_COLOURS[outcome]}"/>')
            at += share
    return parts


def _mean(line: OutcomeSummary) -> str:
    return "missing" if line.mean_reward is None else f"{line.mean_reward:.3f} of {line.rewards}"


def _cell(value: object) -> str:
    return str("" if value is None else value).replace("\\", "\\\\").replace("|", "\\|").replace("\r", " ").replace("\n", " ")
