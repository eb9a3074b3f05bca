"""Fixtures of exchange between ledgers: laptops and a centre in databases of their own, and a sealer with a test key."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import checkpoint, order
from ledger.interchange.ledger_source import LedgerSource
from ledger.ledger import LedgerHandle, open_ledger
from ledger.proof import Checkpoint
from ledger.tree import Edge, edge_root, extend


@dataclass
class Sealed:
    """A ledger with a key that signs its checkpoints."""

    ledger: LedgerHandle
    private: Ed25519PrivateKey
    origin: str

    @property
    def key(self) -> str:
        """The verifier key."""
        return checkpoint.vkey(self.origin, self.private.public_key())

    def seal(self, origin: str | None = None) -> Checkpoint:
        """Sign the tree over everything that is ordered."""
        self.origin = origin or self.origin
        size = order.barrier(self.ledger.pool)
        with self.ledger.connection() as conn:
            rows = conn.execute("SELECT e.leaf FROM event_order AS o JOIN event AS e USING (id) ORDER BY o.position").fetchall()
            edge, _ = extend(Edge(), [bytes(row[0]) for row in rows])
            assert edge.size == size
            head = Checkpoint(self.origin, size, edge_root(edge))
            conn.execute(
                "INSERT INTO checkpoint (origin, size, root, note) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING",
                (head.origin, head.size, head.root, checkpoint.sign(head, self.private)),
            )
        return head

    def source(self, *, with_keys: bool = True) -> LedgerSource:
        """Its log up to the newest checkpoint."""
        return LedgerSource(self.ledger, with_keys=with_keys)


@pytest.fixture
def new_ledger(cluster: "Cluster") -> Iterator[Callable[[], Sealed]]:  # type: ignore[name-defined]  # noqa: F821
    """Makes ledgers in databases of their own."""
    made: list[Sealed] = []

    def make() -> Sealed:
        ledger = open_ledger(cluster.migrated_database(), project="test", actor_id="tester", pool_size=4)
        made.append(Sealed(ledger, Ed25519PrivateKey.generate(), f"tallystick.local/{ledger.ledger_id}"))
        return made[-1]

    yield make
    for item in made:
        item.ledger.close()
        cluster.drop(item.ledger.url)


@pytest.fixture
def laptop(new_ledger: Callable[[], Sealed]) -> Sealed:
    """One ledger."""
    return new_ledger()


@pytest.fixture
def other_laptop(new_ledger: Callable[[], Sealed]) -> Sealed:
    """A second ledger."""
    return new_ledger()


@pytest.fixture
def centre(new_ledger: Callable[[], Sealed]) -> Sealed:
    """The ledger that the others are pushed to."""
    return new_ledger()
