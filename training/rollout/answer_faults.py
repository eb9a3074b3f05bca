"""Faults on the way between harness and engine: a lost call, a cut history, a cut answer, a template that drifts. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training.rollout.episode import Answer, Ask, Message, Tools
from training.worlds.fault_kinds import CallDropped, EngineFault, HistoryCut, LengthStop, TemplateDrift
from training.worlds.fault_plan import FaultPlan, Strike
from training.worlds.faults import Tell


class AnswerFaults:
    """The faults in the model calls of one rollout. What the harness's side does wrong is done in `through`; what the engine's side does
    wrong, the engine asks `engine` for. At most one strikes a call: the first in the plan that does.

    Args:
        plan: which faults.
        key: what their random streams belong to.
        tell: takes note of each fault that strikes, before its effect is seen by the policy.
    """

    def __init__(self, plan: FaultPlan, *, key: tuple[Any, ...], tell: Tell) -> None:
        self._plan, self._key, self._tell = plan, key, tell
        self._told: set[int] = set()
        self._missing: set[int] = set()

    def engine(self, index: int) -> EngineFault | None:
        """What the engine does wrong in model call `index`; a template that has drifted stays so."""
        strikes = (self._at(earlier) for earlier in range(index, -1, -1))
        for back, strike in enumerate(strikes):
            if strike is not None and (isinstance(strike.fault, TemplateDrift) or (back == 0 and isinstance(strike.fault, LengthStop))):
                return strike.fault
        return None

    def through(self, ask: Ask) -> Ask:
        """The way to the model with its faults."""

        async def faulty(messages: Sequence[Message], tools: Tools, index: int) -> Answer:
            strike = self._at(index)
            if strike is not None and isinstance(strike.fault, HistoryCut):
                lost = _older_half(messages)
                self._missing |= lost
                self._note(index, strike if lost else None)
            elif strike is not None and isinstance(strike.fault, LengthStop | TemplateDrift):
                self._note(index, strike)
            answer = await ask([message for place, message in enumerate(messages) if place not in self._missing], tools, index)
            if strike is not None and isinstance(strike.fault, CallDropped) and answer.tool_calls:
                self._note(index, strike)
                return replace(answer, tool_calls=())
            return answer

        return faulty

    def _at(self, index: int) -> Strike | None:
        return next(self._plan.at("answer", index, self._key), None)

    def _note(self, index: int, strike: Strike | None) -> None:
        # A call that is made again is struck again, and labelled once.
        if strike is not None and index not in self._told:
            self._told.add(index)
            self._tell(strike)


def _older_half(messages: Sequence[Message]) -> set[int]:
    """Places of the older half of the answers and of the results that follow them; none where there are fewer than two answers."""
    answers = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if len(answers) < 2:
        return set()
    end = answers[(len(answers) + 1) // 2]
    return {place for place, message in enumerate(messages[:end]) if message["role"] in ("assistant", "tool")}
