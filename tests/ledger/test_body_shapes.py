"""Reading bodies without validation gives what validation gives."""

from collections.abc import Callable
from typing import Any

import orjson

from ledger.body_shapes import shaped
from ledger.events import EVENT_CLASSES
from ledger.ledger import LedgerHandle
from ledger.upcast import CLASSES


def test_every_class_has_a_form_that_can_be_read_so() -> None:
    for cls in EVENT_CLASSES:
        shaped(cls, {}, [])


def test_a_shaped_body_states_what_the_validated_one_does(
    ledger: LedgerHandle, sealed: Callable[[LedgerHandle], None], history: Any
) -> None:
    sealed(ledger)
    history.start("other")
    history.call("other", answered=False)
    ledger.barrier()
    events = ledger.read()
    assert len({event.kind for event in events}) > 12
    for event in events:
        refs: list[str] = []
        body = shaped(CLASSES[event.kind], orjson.loads(event.body_bytes), refs)
        assert (body.edges(), body.stream(), body.key()) == (event.body.edges(), event.body.stream(), event.body.key())
        assert set(refs) == {ref.blob_id for ref in event.body.blobs()}
        assert [ref.blob_id for ref in body.blobs()] == [ref.blob_id for ref in event.body.blobs()]
