"""The person behind a request: answers what is asked from what they know, sometimes wrongly, and every answer is logged. Pure."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from training.worlds.ticket_desk.state import Fact, Said, User

UNKNOWN = "I cannot say more about that. Please follow the request as it is written."
SILENT = "Sorry, I am in a meeting and cannot answer that now."


@dataclass(frozen=True)
class Reply:
    """What the user answers, and the entries for the log that say what was true about it."""

    text: str
    said: tuple[Said, ...]


Respond = Callable[[User, str], Reply]
"""A simulated user: what they know and have said, and a question, to a reply. A user backed by a model has this form too."""


def keyword_user(user: User, question: str) -> Reply:
    """The replies about every topic of which the question holds a word, and about nothing else; the same question gives the same reply."""
    asked = [fact for fact in user.facts if any(_mentions(question, word) for word in fact.about)]
    if not asked:
        return Reply(UNKNOWN, (Said(question, None, UNKNOWN, None),))
    said = tuple(_answer(user, fact, question) for fact in asked)
    return Reply(" ".join(entry.reply for entry in said), said)


def answered(user: User, question: str, respond: Respond) -> tuple[User, str]:
    """The user after the question, with the answer in the log, and the text of the answer."""
    reply = respond(user, question)
    return replace(user, log=(*user.log, *reply.said)), reply.text


def _answer(user: User, fact: Fact, question: str) -> Said:
    before = sum(entry.topic == fact.topic for entry in user.log)
    if fact.error == "silent":
        return Said(question, fact.topic, SILENT, "silent")
    if fact.error == "wrong" or (fact.error == "changes_mind" and before == 0):
        return Said(question, fact.topic, fact.other, fact.error)
    return Said(question, fact.topic, fact.reply, None)


def _mentions(question: str, word: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", question, re.IGNORECASE) is not None
