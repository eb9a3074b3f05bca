"""Model answers that must be one JSON object of a known form: read strictly, asked for again a bounded number of times, never half-used."""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ledger.canonical import parse
from ledger.errors import CanonicalError, ModelCallFailed, ProposalError
from training.proposers import AskModel

Form = TypeVar("Form", bound=BaseModel)
T = TypeVar("T")
_FENCED = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL)
_SHOWN_FAULTS = 3


def read_answer(text: str, form: type[Form]) -> Form:
    """The object in an answer that is JSON, or holds one fenced block of it.

    Raises:
        ProposalError: there is no such object, or it does not have the form; the message says what is wrong.
    """
    blocks = _FENCED.findall(text)
    if len(blocks) > 1:
        raise ProposalError(f"not one object: the answer holds {len(blocks)} fenced blocks")
    try:
        value = parse((blocks[0] if blocks else text).strip())
    except CanonicalError as error:
        raise ProposalError(f"not JSON: {error}") from error
    try:
        return form.model_validate(value, strict=True)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, fault['loc'])) or 'answer'}: {fault['msg']}" for fault in error.errors()[:_SHOWN_FAULTS]]
        raise ProposalError(f"wrong form: {'; '.join(faults)}") from error


@dataclass
class Conversation:
    """One thread with a model in which every answer is checked, and a rejected one is sent back with the reason.

    Attributes:
        ask: the recorded model client.
        messages: what was said so far.
        fields: request fields of every call.
        retries: how often one question may be asked again.
        rejected: reason to the number of answers that were dropped for it.
    """

    ask: AskModel
    messages: list[dict[str, Any]]
    fields: Mapping[str, Any] = field(default_factory=dict)
    retries: int = 2
    rejected: Counter[str] = field(default_factory=Counter)

    def get(self, question: str, form: type[Form], check: Callable[[Form], T]) -> T:
        """What `check` makes of the first answer that it accepts.

        Raises:
            ProposalError: none was accepted; the reason is the last one's.
        """
        self.messages.append({"role": "user", "content": question})
        last = ProposalError("never asked: no retries")
        for _ in range(self.retries + 1):
            try:
                text = self.ask(self.messages, self.fields)
            except ModelCallFailed as failed:
                self.rejected["no answer"] += 1
                last = ProposalError(f"no answer: {failed}")
                continue
            self.messages.append({"role": "assistant", "content": text})
            try:
                return check(read_answer(text, form))
            except ProposalError as error:
                last = error
                self.rejected[f"answer, {str(error).partition(':')[0]}"] += 1
                self.messages.append({"role": "user", "content": f"That cannot be used. {error}. Answer again with the whole object."})
        raise last


def excerpt(texts: Sequence[str], limit: int) -> str:
    """Whole paragraphs from the beginning of the texts, up to `limit` characters, at least a part of the first."""
    kept = ""
    for paragraph in (part.strip() for text in texts for part in text.split("\n\n") if part.strip()):
        if kept and len(kept) + len(paragraph) > limit:
            break
        kept += ("\n\n" if kept else "") + paragraph
    return kept[:limit]
