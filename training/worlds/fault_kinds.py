"""The kinds of faults: where each strikes, what it does, and its parameters. Pure."""

from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, model_validator

Place = Literal["reset", "call", "step", "answer"]
"""Where a fault strikes: at the reset, at the n-th call that reaches the world, before the n-th model call, or in the n-th model call on
its way between harness and engine; n counts from 0."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class AtReset(_Table):
    """Strikes at the reset of a share `rate` of rollouts."""

    place: ClassVar[Place] = "reset"
    rate: float = Field(default=1.0, gt=0, le=1)

    def may_strike(self, index: int) -> bool:
        """Whether it can strike at place number `index`."""
        return True

    def strikes(self, drawn: float) -> bool:
        """Whether it strikes where it can, with `drawn` uniform in [0, 1)."""
        return drawn < self.rate


class _Repeated(_Table):
    """Strikes at a share `rate` of places, or exactly at those in `at`."""

    rate: float | None = Field(default=None, gt=0, le=1)
    at: tuple[Annotated[int, Field(ge=0)], ...] = ()

    @model_validator(mode="after")
    def _one_way(self) -> "_Repeated":
        if (self.rate is None) == (not self.at):
            raise ValueError(f"give either rate or at; seen rate {self.rate} and at {list(self.at)}")
        return self

    def may_strike(self, index: int) -> bool:
        """Whether it can strike at place number `index`."""
        return self.rate is not None or index in self.at

    def strikes(self, drawn: float) -> bool:
        """Whether it strikes where it can, with `drawn` uniform in [0, 1)."""
        return self.rate is None or drawn < self.rate


class AtCall(_Repeated):
    """Strikes at calls that reach the world."""

    place: ClassVar[Place] = "call"


class AtStep(_Repeated):
    """Strikes before model calls."""

    place: ClassVar[Place] = "step"

    @model_validator(mode="after")
    def _after_the_request(self) -> "AtStep":
        if 0 in self.at:
            raise ValueError("a user speaks before model call 0 by the request alone; allowed: at from 1 on")
        return self


class AtAnswer(_Repeated):
    """Strikes in model calls of the policy itself, on the way between its harness and its engine."""

    place: ClassVar[Place] = "answer"


class ForeignCall(_Table):
    """A tool call that the policy did not make."""

    name: str
    arguments: dict[str, Any] = Field(default_factory=dict)


class StrayWrite(_Table):
    """A write that nobody asked for: a tool call, or `value` at the place `path` (RFC 6901) of the state's view, or a drawn one.

    A drawn one copies a value from one row of a table to another. It and `path` need a world whose snapshots are the JSON of its views.
    """

    call: ForeignCall | None = None
    path: str | None = Field(default=None, pattern="^/")
    value: Any = None

    @model_validator(mode="after")
    def _one_write(self) -> "StrayWrite":
        if self.call is not None and self.path is not None:
            raise ValueError("give either call or path and value")
        return self


class Timeout(AtCall):
    """No answer within `seconds`, which count as tool time; the call was carried out all the same if `executed`."""

    kind: Literal["timeout"] = "timeout"
    seconds: float = Field(default=30.0, ge=0)
    executed: bool = False


class PermissionDenied(AtCall):
    """The call is refused and not carried out."""

    kind: Literal["permission_denied"] = "permission_denied"


class MalformedResult(AtCall):
    """The call is carried out; its answer is no JSON, or JSON of another type than it should be."""

    kind: Literal["malformed_result"] = "malformed_result"
    form: Literal["broken_json", "wrong_type"] = "broken_json"


class TruncatedResult(AtCall):
    """The call is carried out; only a share `keep` of its answer arrives, by default one drawn from 0.2 to 0.8."""

    kind: Literal["truncated_result"] = "truncated_result"
    keep: float | None = Field(default=None, ge=0, lt=1)


class SlowAnswer(AtCall):
    """The answer takes `seconds` of tool time more, which somebody really waits for only if `sleep`."""

    kind: Literal["slow_answer"] = "slow_answer"
    seconds: float = Field(default=30.0, gt=0)
    sleep: bool = False


class DroppedConnection(AtCall):
    """The connection breaks: the world fails; or, if `recovered`, the policy is told, and the call was carried out if `executed`."""

    kind: Literal["dropped_connection"] = "dropped_connection"
    recovered: bool = False
    executed: bool = False

    @model_validator(mode="after")
    def _seen(self) -> "DroppedConnection":
        if self.executed and not self.recovered:
            raise ValueError("executed needs recovered: a rollout that ends here has no state after the call")
        return self


class DuplicateDelivery(AtCall):
    """The call is carried out twice and answered as the second time; or once, and the answer of the call before comes again."""

    kind: Literal["duplicate_delivery"] = "duplicate_delivery"
    form: Literal["executed_twice", "stale_answer"] = "executed_twice"

    @model_validator(mode="after")
    def _has_an_earlier(self) -> "DuplicateDelivery":
        if self.form == "stale_answer" and 0 in self.at:
            raise ValueError("call 0 has no earlier answer that could come again; allowed for stale_answer: at from 1 on")
        return self


class CorruptedState(AtCall, StrayWrite):
    """A stray write as the call arrives, which then acts on the changed state."""

    kind: Literal["corrupted_state"] = "corrupted_state"


class WrongReset(AtReset, StrayWrite):
    """The reset gives another state than the task's: from `initial_state`, or with a stray write."""

    kind: Literal["wrong_reset"] = "wrong_reset"
    initial_state: Any = None


class SeedIgnored(AtReset):
    """The reset runs on a drawn seed in place of the one that was given."""

    kind: Literal["seed_ignored"] = "seed_ignored"


class InterruptingUser(AtStep):
    """The user says `message` between two steps; what is asked for stays as it was."""

    kind: Literal["interrupting_user"] = "interrupting_user"
    message: str = Field(min_length=1)


class ChangingUser(AtStep):
    """The user changes the request by `message`, before the given model call or when the policy thinks that it is done.

    `spec` is what the change makes of the constants that a verifier judges by; the bundle's own spec must say the same, since what counts
    is the last wish.
    """

    kind: Literal["changing_user"] = "changing_user"
    message: str = Field(min_length=1)
    spec: dict[str, Any] = Field(min_length=1)

    @model_validator(mode="after")
    def _once(self) -> "ChangingUser":
        if len(self.at) != 1:
            raise ValueError(f"the last wish must be certain; allowed: at with one step, seen at {list(self.at)} and rate {self.rate}")
        return self


class CallDropped(AtAnswer):
    """The parser loses the tool calls of an answer: the harness reads an answer without any; the engine's record holds them."""

    kind: Literal["call_dropped"] = "call_dropped"


class HistoryCut(AtAnswer):
    """From this model call on the older half of the answers that were there, with their results, is missing from the requests, and
    nothing says so. Strikes where there are two answers or more."""

    kind: Literal["history_cut"] = "history_cut"

    @model_validator(mode="after")
    def _has_a_history(self) -> "HistoryCut":
        if any(at < 2 for at in self.at):
            raise ValueError("before model call 2 there are no two answers; allowed: at from 2 on")
        return self


class LengthStop(AtAnswer):
    """The engine ends an answer by its length, long before the tokens that were asked for. Scripted engines alone can."""

    kind: Literal["length_stop"] = "length_stop"


class TemplateDrift(AtAnswer):
    """From this model call on the engine's chat template leaves the results of tools out. Scripted engines alone can."""

    kind: Literal["template_drift"] = "template_drift"


CallFault = (
    Timeout | PermissionDenied | MalformedResult | TruncatedResult | SlowAnswer | DroppedConnection | DuplicateDelivery | CorruptedState
)
ResetFault = WrongReset | SeedIgnored
UserFault = InterruptingUser | ChangingUser
EngineFault = LengthStop | TemplateDrift
HarnessFault = CallDropped | HistoryCut | EngineFault
AnyFault = CallFault | ResetFault | UserFault | HarnessFault
Fault = Annotated[AnyFault, Field(discriminator="kind")]
KINDS: tuple[str, ...] = tuple(kind.model_fields["kind"].default for kind in get_args(AnyFault))
