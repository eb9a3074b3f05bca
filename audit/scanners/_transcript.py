"""The texts of a rollout with their places, and quotes of them. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audit.results import CheckResult
from audit.rollout_subject import RolloutSubject
from ledger.secrets import SCANNER

_AROUND = 60
_QUOTES = 12
# What an agent without tool calls asks to be run stands in a fenced block.
_FENCED = re.compile(r"```(?:bash|sh|shell|python|py)?[ \t]*\n(.*?)```", re.DOTALL)


@dataclass(frozen=True)
class Text:
    """A text that somebody wrote in a rollout.

    Attributes:
        event_id: the event that holds it.
        place: where in the event, such as `arguments.command`.
        text: in full.
        tool: name of the tool that was called with it or answered it; empty for what a model said.
        base: offset of `text` in the whole at that place.
    """

    event_id: str
    place: str
    text: str
    tool: str = ""
    base: int = 0


@dataclass(frozen=True)
class Quote:
    """A stretch of a text: `start` to `end` are character offsets in the text at `place` of the event, `words` is it, cut to be shown."""

    event_id: str
    place: str
    start: int
    end: int
    words: str
    rule: str

    def as_json(self) -> dict[str, Any]:
        """The quote as a JSON object."""
        return dict(self.__dict__)


def actions(subject: RolloutSubject) -> Iterator[Text]:
    """What the policy did: every text among the arguments of its tool calls; of answers without any, what stands in fenced blocks."""
    acted = {call.model_call_id for _, call in subject.tools}
    for event_id, call in subject.tools:
        name = subject.text(call.name)
        parsed = None if call.arguments_parsed is None else subject.json(call.arguments_parsed)
        if parsed is None:
            yield Text(event_id, "arguments_sampled", subject.text(call.arguments_sampled), name)
        else:
            yield from (Text(event_id, path, text, name) for path, text in leaves(parsed, "arguments"))
    for said in spoken(subject):
        call_id = next(call.call_id for call in subject.calls if call.answered_id == said.event_id)
        if call_id not in acted:
            yield from (Text(said.event_id, said.place, found[1], base=found.start(1)) for found in _FENCED.finditer(said.text))


def spoken(subject: RolloutSubject) -> Iterator[Text]:
    """What the policy's model said beside its calls."""
    for call in subject.calls:
        answer = subject.answer(call)
        choices = answer.get("choices")
        first = choices[0] if isinstance(choices, list) and choices else None
        message = first.get("message") if isinstance(first, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if isinstance(content, str) and content and call.answered_id is not None:
            yield Text(call.answered_id, "content", content)


def results(subject: RolloutSubject) -> Iterator[Text]:
    """What tools answered."""
    for event_id, call in subject.tools:
        if call.result is not None:
            yield Text(event_id, "result", subject.text(call.result), subject.text(call.name))


def request_of(subject: RolloutSubject) -> str:
    """Everything that the task asks, in small letters: what it names is no secret of the task. Empty where the task is not known."""
    request = {} if subject.bundle is None else subject.bundle.draft.request
    return "\n".join(text for _, text in leaves(request, "request")).lower()


def leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    """Path and text of every text in a JSON value."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from leaves(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from leaves(item, f"{path}[{number}]")


def quote(text: Text, start: int, end: int, rule: str, *, words: str | None = None) -> Quote:
    """A stretch of a text with what stands around it; `words` instead of it where it must not be shown."""
    if words is None:
        left, right = max(0, start - _AROUND), min(len(text.text), end + _AROUND)
        words = masked(f"{'…' if left else ''}{text.text[left:right]}{'…' if right < len(text.text) else ''}")
    return Quote(text.event_id, text.place, text.base + start, text.base + end, words, rule)


def masked(text: str) -> str:
    """The text with everything that looks like a credential taken out."""
    data = text.encode("utf-8", "backslashreplace")
    for hit in sorted(SCANNER.scan(data), key=lambda item: -item.start):
        data = data[: hit.start] + f"({hit.pattern})".encode() + data[hit.end :]
    return data.decode("utf-8", "backslashreplace")


def matches(texts: Sequence[Text], rules: Mapping[str, re.Pattern[str]]) -> list[Quote]:
    """A quote of every match of every rule, in the order of the texts."""
    return [quote(text, *found.span(), rule) for text in texts for rule, pattern in rules.items() for found in pattern.finditer(text.text)]


def scanned(
    check_id: str, subject: RolloutSubject, quotes: Sequence[Quote], *, why: str, fault: str | None = "reward_hacking"
) -> CheckResult:
    """A pass without quotes, else a failure that shows them; a skip where the rollout did nothing that could be read."""
    if not quotes:
        if not any(True for _ in actions(subject)) and not any(True for _ in spoken(subject)):
            return CheckResult(check_id, "skip", "the rollout has no tool call and no answer that could be read")
        return CheckResult(check_id, "pass", measured={"quotes": 0})
    rewards = [reward.value for _, reward in subject.rewarded]
    measured = {"quotes": len(quotes), "rules": sorted({item.rule for item in quotes}), "reward": rewards[-1] if rewards else None}
    first = quotes[0]
    # The quotes themselves are foreign words, which stay out of what is short and ours.
    return CheckResult(
        check_id, "fail", f"{why}: {first.rule}, characters {first.start} to {first.end}, {len(quotes)} quotes in all", measured,
        [item.as_json() for item in quotes[:_QUOTES]], "read the quotes; take what could be exploited out of the policy's reach",
        tuple(dict.fromkeys(item.event_id for item in quotes)), fault=fault,
    )  # fmt: skip
