"""An OpenEnv environment to try the adapter with: find a number below a hundred by asking whether it is higher. Serves `app`."""

import random
from typing import Any

from openenv.core.env_server.http_server import create_app
from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import Action, Observation, State
from pydantic import Field


class Guess(Action):
    """Guess the hidden number."""

    number: int = Field(ge=0, le=99, description="your guess")


class Answer(Observation):
    """What the environment answers."""

    says: str = ""


class FindTheNumber(Environment):
    """The number is drawn from the episode's seed; finding it is worth 1 and ends the episode, every other guess is worth 0."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="", step_count=0)
        self._hidden = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **options: Any) -> Answer:
        """A new number."""
        self._state = State(episode_id=episode_id, step_count=0)
        self._hidden = random.Random(seed).randrange(100)
        return Answer(says="I think of a number from 0 to 99")

    def step(self, action: Guess, timeout_s: float | None = None, **options: Any) -> Answer:
        """Whether the guess is right, too low or too high."""
        self._state.step_count += 1
        if action.number == self._hidden:
            return Answer(says="that is it", done=True, reward=1.0)
        return Answer(says="higher" if action.number < self._hidden else "lower", reward=0.0)

    @property
    def state(self) -> State:
        """The episode's id and number of steps."""
        return self._state


app = create_app(FindTheNumber, Guess, Answer, env_name="find_the_number", max_concurrent_envs=8)
