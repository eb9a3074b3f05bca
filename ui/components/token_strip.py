"""The tokens of one model call as chips: text over id, coloured by a signal that the reader picks."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from ui.components.markup import chip, escape, facts, long_text
from ui.data import CallTrace, Decoder

SIGNALS = ("logprob", "text", "position")
LEGENDS = {
    "logprob": "green: sampled nearly surely · red: logprob −5 or less · no colour: no logprob",
    "text": "violet: control token · blue: digits · grey: white space · amber: punctuation · no colour: words",
    "position": "from light (first) to dark (last)",
}
SHOWN = 1500
"""Tokens of a strip that are shown before it is clipped."""
_SEEN = {"\n": "⏎", "\t": "⇥", "\r": "␍", " ": "·"}


@dataclass(frozen=True)
class Token:
    """One token to show.

    Attributes:
        text: decoded by itself; None without a decoder.
        logprob: in nats; None where none was recorded.
        special: a control token, such as the end of a message.
    """

    token_id: int
    text: str | None
    logprob: float | None = None
    special: bool = False


def tokens_of(token_ids: Sequence[int], logprobs: Sequence[float] | None, decoder: Decoder | None) -> list[Token]:
    """The tokens of a call, one for each id."""
    texts: Sequence[str | None] = [None] * len(token_ids) if decoder is None else decoder.texts(token_ids)
    special = frozenset() if decoder is None else decoder.special
    paired = logprobs if logprobs is not None and len(logprobs) == len(token_ids) else None
    return [Token(i, texts[n], None if paired is None else paired[n], i in special) for n, i in enumerate(token_ids)]


def strip(tokens: Sequence[Token], signal: str) -> str:
    """HTML of the chips; white space is made visible and everything is escaped."""
    return f'<div class="tl-strip">{"".join(_token(token, n, len(tokens), signal) for n, token in enumerate(tokens))}</div>'


def _token(token: Token, n: int, count: int, signal: str) -> str:
    text = "?" if token.text is None else "".join(_SEEN.get(c, c) for c in token.text) or "∅"
    about = f"token {n} · id {token.token_id}"
    if token.logprob is not None:
        about += f" · logprob {token.logprob:.4f} · p {math.exp(min(token.logprob, 0.0)):.3f}"
    colour = _colour(token, n, count, signal)
    style = f' style="background:{colour}"' if colour else ""
    kind = "tl-token tl-special" if token.special else "tl-token"
    return f'<span class="{kind}" title="{escape(about)}"{style}><b>{escape(text)}</b><i>{token.token_id}</i></span>'


def _colour(token: Token, n: int, count: int, signal: str) -> str | None:
    if signal == "logprob":
        if token.logprob is None:
            return None
        doubt = min(1.0, -token.logprob / 5) if math.isfinite(token.logprob) else 1.0
        return f"hsla({140 * (1 - max(0.0, doubt)):.0f},70%,48%,.30)"
    if signal == "position":
        return f"hsla(215,75%,50%,{0.06 + 0.44 * n / max(1, count - 1):.2f})"
    text = token.text or ""
    if token.special:
        return "hsla(262,80%,60%,.22)"
    if text and not text.strip():
        return "hsla(220,8%,50%,.18)"
    if text.strip().isdigit():
        return "hsla(205,85%,50%,.22)"
    return "hsla(40,90%,50%,.22)" if text and not any(c.isalpha() for c in text) else None


def show_tokens(call: CallTrace, decoder: Decoder | None, signal: str) -> None:
    """One model call's facts, sampled tokens, decoded text and, when asked for, prompt tokens."""
    _facts(call)
    if call.sampled_ids is None:
        st.info(f"No tokens: {call.tokens_missing or 'the call has no answer'}.".replace("..", "."), icon=":material/info:")
        return
    if decoder is None:
        st.caption("The tokenizer of this model version is not on this machine: ids are shown without text.")
    sampled = tokens_of(call.sampled_ids, call.logprobs, decoder)
    st.html(f'<div class="tl-label">{len(sampled)} sampled tokens</div>')
    _clipped(sampled, signal, f"sampled-{call.call_id}")
    st.caption(LEGENDS[signal])
    if decoder is not None:
        with st.expander("Decoded text of the sampled tokens"):
            long_text(decoder.text(call.sampled_ids), f"decoded-{call.call_id}", mono=True)
    prompt_ids = call.prompt_ids or ()
    if prompt_ids and st.toggle(f"Show the {len(prompt_ids):,} prompt tokens", key=f"prompt-{call.call_id}"):
        _clipped(tokens_of(prompt_ids, None, decoder), "text" if signal == "logprob" else signal, f"prompt-all-{call.call_id}")


def _facts(call: CallTrace) -> None:
    mode = call.logprobs_mode or "no logprobs"
    st.html(facts({
        "call": f"{call.index} · {call.role}", "status": call.status or "no answer (dangling)", "finish reason": call.finish_reason or "–",
        "prompt tokens": "–" if call.prompt_ids is None else f"{len(call.prompt_ids):,}",
        "sampled tokens": "–" if call.sampled_ids is None else f"{len(call.sampled_ids):,}", "logprobs": mode,
        "model version": ", ".join(call.model_versions) or call.model or "–",
        "latency": "–" if call.latency_s is None else f"{call.latency_s:.2f} s",
    }))  # fmt: skip
    if call.sampling:
        st.html("".join(chip(f"{name} = {value}") for name, value in sorted(call.sampling.items())))


def _clipped(tokens: Sequence[Token], signal: str, key: str) -> None:
    whole = len(tokens) <= SHOWN or st.session_state.get(key, False)
    st.html(strip(tokens if whole else tokens[:SHOWN], signal))
    if len(tokens) > SHOWN:
        st.toggle(f"Show all {len(tokens):,} tokens", key=key)
