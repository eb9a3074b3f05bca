"""A prompt begins with one begin-of-sequence token. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import with_tokens
from audit.rollout_checks._faults import Fault, found, skipped


@answers("double_bos")
def double_bos(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether a prompt begins with the same special token twice.

    Special is, with a tokenizer at hand, a token whose text is empty or in brackets; without one, a token that appears nowhere else in
    the prompt, as that of a line break or of a turn would.

    Source: case C6.
    """
    faults, looked = [], 0
    for call, answered, tokens in with_tokens(subject):
        if tokens.prompt is None or len(tokens.prompt) < 2:
            continue
        looked += 1
        first = int(tokens.prompt[0])
        if first != int(tokens.prompt[1]):
            continue
        version = next((span.model_version for span in answered.version_spans), "")
        text = None if subject.decode is None else subject.decode(version, [first])
        special = not (tokens.prompt[2:] == first).any() if text is None else not text or (text[0] in "<[" and text[-1] in ">]")
        if special:
            faults.append(Fault({"call": answered.index, "token": first, "text": text}, (call.answered_id,)))
    if not looked:
        return skipped("double_bos", "no call of the rollout has prompt ids")
    return [
        found(
            "double_bos", faults, why="a prompt begins with two begin-of-sequence tokens", kind="template_drift",
            remedy="let either the template or the tokenizer put it there", measured={"prompts": looked},
        )
    ]  # fmt: skip
