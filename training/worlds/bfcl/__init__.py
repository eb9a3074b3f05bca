"""The multi-turn part of the Berkeley Function-Calling Leaderboard v4 as a world: eight simulated APIs, run in a process apart."""

from training.worlds.bfcl.docs import WHEEL
from training.worlds.bfcl.scripts import oracle, replay, with_end_state, wrong
from training.worlds.bfcl.tasks import CATEGORIES, load_tasks
from training.worlds.bfcl.world import Bfcl, BfclState

__all__ = ["CATEGORIES", "WHEEL", "Bfcl", "BfclState", "load_tasks", "oracle", "replay", "with_end_state", "wrong"]
