"""Plans of faults: which kinds strike where, as data with a digest, each drawn from a random stream of its own. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from pydantic import ConfigDict, Field, RootModel, ValidationError, model_validator

from ledger.bundle import BundleDraft
from ledger.canonical import digest
from ledger.errors import BundleError, SettingsError
from ledger.ids import derived_id
from training.worlds.fault_kinds import AnyFault, AtAnswer, AtCall, AtReset, ChangingUser, Fault, Place


@dataclass(frozen=True)
class Strike:
    """A fault that strikes at a place.

    Attributes:
        fault: what strikes.
        where: the place with its index, such as `call:3`; `reset` has none.
        seed: from which it was drawn, 31 bits.
    """

    fault: AnyFault
    where: str
    seed: int

    @property
    def rng(self) -> Random:
        """The stream of what else is drawn for it, from its start."""
        stream = Random(self.seed)
        # The first number said whether it strikes.
        stream.random()
        return stream


class FaultPlan(RootModel[tuple[Fault, ...]]):
    """The faults of a rollout as data; its JSON is the list of them, `{"kind", "rate" or "at", parameters...}` each."""

    model_config = ConfigDict(frozen=True)
    root: tuple[Fault, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _apart(self) -> "FaultPlan":
        taken: dict[int, str] = {}
        for fault in self.root:
            for index in fault.at if isinstance(fault, AtCall) else ():
                if index in taken:
                    raise ValueError(f"call {index} is struck by {taken[index]} and by {fault.kind}; allowed: one fault a call")
                taken[index] = fault.kind
        return self

    @property
    def plan_id(self) -> str:
        """Hex SHA-256 over the plan with all its parameters."""
        return digest(self.as_json())

    def as_json(self) -> Any:
        """The plan as JSON with all its parameters, which `read_plan` reads."""
        return self.model_dump(mode="json")

    def at(self, place: Place, index: int, key: tuple[Any, ...]) -> Iterator[Strike]:
        """The faults that strike at a place, in the plan's order.

        Each is drawn from its own stream, keyed by `key`, its index, its kind and how many of its kind come before it in the plan, so that
        no other fault, nor anything else in the rollout, shifts it.

        Args:
            key: what the plan's streams belong to, such as a root seed and a rollout id.
        """
        before: dict[str, int] = {}
        for fault in self.root:
            nth = before[fault.kind] = before.get(fault.kind, -1) + 1
            if fault.place != place or not fault.may_strike(index):
                continue
            seed = int(derived_id(*key, "fault", index, fault.kind, nth).replace("-", "")[:8], 16) & 0x7FFFFFFF
            if fault.strikes(Random(seed).random()):
                yield Strike(fault, place if place == "reset" else f"{place}:{index}", seed)


def read_plan(value: Any) -> FaultPlan:
    """The plan in a JSON list.

    Raises:
        SettingsError: it is none; the message names the first place and the value seen.
    """
    try:
        return FaultPlan.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the list"
        raise SettingsError(f"faults: {where}: {first['msg']}; seen {first.get('input')!r}") from error


def declared_plan(draft: BundleDraft) -> FaultPlan | None:
    """The faults that the bundle itself declares as `spec["faults"]`, so the legal behaviour of its world and user; None without any.

    Raises:
        BundleError: they are no plan, or strike at the reset, which a bundle's initial state already decides.
    """
    if draft.spec.get("faults") is None:
        return None
    try:
        plan = read_plan(draft.spec["faults"])
    except SettingsError as error:
        raise BundleError(f"bundle {draft.name!r}: spec.{error}") from error
    for fault in plan.root:
        if isinstance(fault, AtReset):
            raise BundleError(f"bundle {draft.name!r} declares {fault.kind}; a bundle declares its initial state by itself")
        if isinstance(fault, AtAnswer):
            raise BundleError(f"bundle {draft.name!r} declares {fault.kind}; allowed: faults of its world and its user")
    check_last_wish(plan, draft)
    return plan


def check_last_wish(plan: FaultPlan, draft: BundleDraft) -> None:
    """Nothing, if the bundle's spec is the one in which the user's changes end.

    Raises:
        BundleError: it is not, so a verifier would judge another wish.
    """
    last: dict[str, Any] = {}
    for fault in sorted((fault for fault in plan.root if isinstance(fault, ChangingUser)), key=lambda fault: fault.at):
        last |= fault.spec
    for name, value in last.items():
        if draft.spec.get(name) != value:
            raise BundleError(
                f"bundle {draft.name!r}: its user's last wish has {name} = {value!r}, its spec {draft.spec.get(name)!r};"
                " a verifier judges by the spec, so they must agree"
            )
