"""Small models are fastest on one thread."""

from collections.abc import Iterator

import pytest

from training.optimise.logprobs import torch_threads


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    with torch_threads(1):
        yield
