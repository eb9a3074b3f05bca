"""The only way from text to markup: escapes for HTML and Markdown, chips, blocks of text, and the style sheet of all pages."""

import html
import json
import re
from typing import Any

import streamlit as st

LONG = 1600
"""Characters of a text that are shown before it is clipped."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>$:~&])")
STYLE = """<style>
.block-container {padding-top: 4.4rem; max-width: 1500px;}
.block-container h1 {font-size: 1.7rem; padding: 0 0 .3rem;}
.block-container h3 {font-size: 1.15rem;}
[data-testid="stAppDeployButton"] {display: none;}
[data-testid="stMetricValue"] {font-size: 1.5rem;}
.tl {font-size: .875rem; line-height: 1.45;}
.tl-text {white-space: pre-wrap; overflow-wrap: anywhere; font-size: .9rem; line-height: 1.5;}
.tl-mono {white-space: pre-wrap; overflow-wrap: anywhere; font-family: "Source Code Pro", ui-monospace, monospace; font-size: .78rem;
  line-height: 1.45; background: rgba(127,127,140,.09); border-radius: .4rem; padding: .45rem .6rem; margin: .15rem 0 .4rem;
  max-height: 24rem; overflow-y: auto;}
.tl-label {font-size: .72rem; color: rgba(127,127,140,1); text-transform: uppercase; letter-spacing: .04em; margin-top: .35rem;}
.tl-chip {display: inline-block; padding: .05rem .5rem; border-radius: 1rem; font-size: .76rem; font-weight: 600; margin: 0 .25rem .15rem 0;
  white-space: nowrap; border: 1px solid transparent;}
.tl-good {background: rgba(22,163,74,.14); color: #15803d;}
.tl-bad {background: rgba(220,38,38,.12); color: #b91c1c;}
.tl-warn {background: rgba(217,119,6,.15); color: #b45309;}
.tl-info {background: rgba(37,99,235,.11); color: #1d4ed8;}
.tl-quiet {background: rgba(127,127,140,.14); color: rgb(100,105,120);}
.tl-facts {display: flex; flex-wrap: wrap; gap: .5rem 1.6rem; margin: .25rem 0 .5rem;}
.tl-facts > div {min-width: 5rem;} .tl-facts b {font-weight: 600; font-size: .92rem; overflow-wrap: anywhere;}
.tl-table {width: 100%; border-collapse: collapse; font-size: .82rem; table-layout: fixed;}
.tl-table th {text-align: left; font-weight: 600; font-size: .72rem; color: rgb(127,127,140); padding: .2rem .4rem;}
.tl-table td {border-top: 1px solid rgba(127,127,140,.2); padding: .3rem .4rem; vertical-align: top; overflow-wrap: anywhere;}
.tl-table pre, .tl details pre {white-space: pre-wrap; overflow-wrap: anywhere; font-size: .74rem; margin: .2rem 0;
  max-height: 20rem; overflow-y: auto;
  background: rgba(127,127,140,.08); padding: .35rem .5rem; border-radius: .35rem;}
.tl details summary {cursor: pointer; color: rgb(100,105,120); font-size: .78rem;}
.tl-strip {display: flex; flex-wrap: wrap; gap: 3px; margin: .3rem 0;}
.tl-token {display: inline-flex; flex-direction: column; align-items: center; border-radius: .3rem; padding: .08rem .3rem;
  min-width: 1.5rem;
  border: 1px solid rgba(127,127,140,.28); font-family: "Source Code Pro", ui-monospace, monospace; line-height: 1.25;}
.tl-token b {font-weight: 600; font-size: .8rem; white-space: pre;}
.tl-token i {font-style: normal; font-size: .6rem; color: rgb(115,120,135);}
.tl-special {border-style: dashed; border-color: rgb(124,58,237);}
</style>"""


def shown(text: str) -> str:
    """The text with what cannot be seen or sent written out: control characters, bidirectional marks and lone surrogates as `\\uNNNN`."""
    return _HIDDEN.sub(lambda found: f"\\u{ord(found.group()):04x}", text)


def escape(text: Any) -> str:
    """Any value as text inside HTML."""
    return html.escape(shown(str(text)), quote=True)


def plain(text: Any) -> str:
    """Any value as text inside Markdown, on one line."""
    return _MARKDOWN.sub(r"\\\1", " ".join(shown(str(text)).split()))


def chip(text: Any, tone: str = "quiet") -> str:
    """A small label; tone is good, bad, warn, info or quiet."""
    return f'<span class="tl-chip tl-{tone}">{escape(text)}</span>'


def facts(pairs: dict[str, Any]) -> str:
    """Names with their values beside each other; a value that is markup already is wrapped in `Markup`."""
    cells = [
        f'<div><div class="tl-label">{escape(name)}</div><b>{value.html if isinstance(value, Markup) else escape(value)}</b></div>'
        for name, value in pairs.items()
    ]
    return f'<div class="tl tl-facts">{"".join(cells)}</div>'


class Markup:
    """HTML that was built from escaped text."""

    def __init__(self, built: str) -> None:
        self.html = built


def as_json(value: Any, limit: int = 20_000) -> str:
    """A JSON value as indented text, clipped at `limit` characters."""
    text = value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False)
    return text if len(text) <= limit else f"{text[:limit]}\n… clipped at {limit:,} of {len(text):,} characters; the raw JSON holds all"


def details(summary: str, text: str, *, opened: bool = False) -> str:
    """A block that opens to text."""
    return f"<details{' open' if opened else ''}><summary>{escape(summary)}</summary><pre>{escape(text)}</pre></details>"


def long_text(text: str, key: str, *, mono: bool = False, limit: int = LONG) -> None:
    """Show foreign text as text; beyond `limit` characters it is clipped until `Show all` is asked for."""
    whole = len(text) <= limit or st.session_state.get(key, False)
    body = text if whole else f"{text[:limit]}…"
    st.html(f'<div class="{"tl-mono" if mono else "tl-text"}">{escape(body) or "&nbsp;"}</div>')
    if len(text) > limit:
        st.toggle(f"Show all {len(text):,} characters", key=key)


def outcome_tone(outcome: str) -> str:
    """The tone of an outcome's chip: a fault is not the policy's failure, so it has another colour."""
    if outcome == "succeeded":
        return "good"
    if outcome in ("task_failed", "limit_ended"):
        return "bad"
    return "quiet" if outcome in ("running", "unknown") else "warn"


def status_chip(passed: bool | None, status: str = "completed") -> str:
    """passed, failed or, for what decided nothing, its status."""
    if passed is None:
        return chip("error" if status == "error" else "undecided", "warn")
    return chip("passed", "good") if passed else chip("failed", "bad")
