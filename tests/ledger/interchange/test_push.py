"""Pushing a ledger into another: leaves, ids and versions stay, positions are new, and nothing comes twice."""

from collections.abc import Callable
from typing import Any

from ledger import lineage, order
from ledger.interchange import held
from ledger.interchange.push import push
from ledger.verify import verify


def test_event_keeps_leaf_ledger_and_version(laptop: Any, centre: Any, sealed: Callable[..., None]) -> None:
    sealed(laptop.ledger)
    head = laptop.seal()
    told = push(laptop.source(), centre.ledger, key=laptop.key)
    assert (told.status, told.events, told.size) == ("pushed", head.size, head.size)
    centre.ledger.barrier()
    here = {e.event_id: e for e in centre.ledger.read(limit=5000)}
    for there in laptop.ledger.read(limit=5000):
        twin = here[there.event_id]
        assert (twin.leaf, twin.ledger_id, twin.version, twin.body_bytes) == (there.leaf, there.ledger_id, there.version, there.body_bytes)
    report = verify(centre.ledger)
    assert report.problems == ()
