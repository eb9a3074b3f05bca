"""What a crew does in its processes for the tests: a module of its own, since they import all that its module does."""

import os
import time

from training.lab import Lab


def process_id(lab: Lab, items: list[int]) -> int:
    """The process that a share was given to; it stays busy, so that the next share goes to another one."""
    time.sleep(1)
    return os.getpid()
