"""The faults of one rollout: those that its bundle declares, and planted ones with their labels, which wait to be recorded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from ledger.events import FaultInjected
from training.rollout.answer_faults import AnswerFaults
from training.rollout.episode import Ask
from training.worlds import World
from training.worlds.fault_kinds import EngineFault
from training.worlds.fault_plan import FaultPlan, Strike, check_last_wish, declared_plan
from training.worlds.faults import FaultyUser, FaultyWorld, declared_user, declared_world


@dataclass(frozen=True)
class Plants:
    """The faults planted in all rollouts of a group: their plan, and the root seed of their streams."""

    plan: FaultPlan
    seed: int


@dataclass
class Planting:
    """A rollout's world and user with its faults.

    Attributes:
        rollout_id: whose they are.
        world: the world as the policy meets it.
    """

    rollout_id: str
    world: World[Any]
    _users: tuple[FaultyUser, ...]
    _plan_id: str | None
    _strikes: list[Strike]
    _answers: AnswerFaults | None = None
    _told: int = 0

    def hear(self, step: int, ended: bool) -> Sequence[Mapping[str, Any]]:
        """What the user says before model call `step`, `ended` when the policy has answered the last user turn."""
        return [message for user in self._users for message in user.says(step, ended=ended)]

    def through(self, ask: Ask) -> Ask:
        """The policy's way to its model, with what is planted on it."""
        return ask if self._answers is None else self._answers.through(ask)

    def engine_fault(self, index: int) -> EngineFault | None:
        """What a scripted engine is to do wrong in model call `index`."""
        return None if self._answers is None else self._answers.engine(index)

    def labels(self, index: int) -> list[FaultInjected]:
        """The labels of planted faults that struck since the last call of this, in their order.

        Args:
            index: number of the tool call under way; a world counts only those calls that reach it.
        """
        labels = []
        for strike in self._strikes[self._told :]:
            place = f"call:{index}" if strike.where.startswith("call:") else strike.where
            labels.append(
                FaultInjected(
                    rollout_id=self.rollout_id,
                    index=self._told,
                    fault=strike.fault.kind,
                    place=place,
                    seed=strike.seed,
                    plan_id=self._plan_id,
                )
            )
            self._told += 1
        return labels


def check_faults(draft: BundleDraft, plants: Plants | None, *, scripted: bool = True) -> None:
    """Nothing, if the bundle's declared faults and the planted ones fit it, and its engine can have them.

    Raises:
        SettingsError: an engine that samples cannot be made to fail so.
        BundleError: what it declares is no plan, or its spec is not the user's last wish.
    """
    declared_plan(draft)
    if plants is not None:
        check_last_wish(plants.plan, draft)
        wrong = next((fault.kind for fault in plants.plan.root if isinstance(fault, EngineFault)), None)
        if wrong is not None and not scripted:
            raise SettingsError(f"fault {wrong} is planted in an engine that samples; allowed: in scripted ones")


def plant(world: World[Any], draft: BundleDraft, plants: Plants | None, rollout_id: str, *, seed: int) -> Planting:
    """The world and user of a rollout: as its bundle declares them, and over that what is planted.

    Args:
        seed: of the reset, from which declared faults are drawn; planted ones are drawn from their own root seed and the rollout's id.
    """
    legal, user = declared_world(world, draft, seed=seed), declared_user(draft, seed=seed)
    users = () if user is None else (user,)
    strikes: list[Strike] = []
    if plants is None:
        return Planting(rollout_id, legal, users, None, strikes)
    key = (plants.seed, rollout_id)
    faulty = FaultyWorld(legal, plants.plan, key=key, tell=strikes.append)
    stranger = FaultyUser(draft, plants.plan, key=key, tell=strikes.append)
    answers = AnswerFaults(plants.plan, key=key, tell=strikes.append)
    return Planting(rollout_id, faulty, (*users, stranger), plants.plan.plan_id, strikes, answers)
