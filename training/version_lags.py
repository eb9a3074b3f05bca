"""How many updates lie between a model version and one that was trained from it. Reads the database."""

from collections.abc import Collection

from ledger.events import ModelVersionPublished
from ledger.ledger import LedgerHandle


def version_lags(ledger: LedgerHandle, trained: str, sampled: Collection[str]) -> dict[str, int]:
    """Those of the versions that `trained` descends from, with the number of updates in between; 0 for `trained` itself.

    An update that left the weights as they were made no version, so it does not count.

    Args:
        trained: the version that is trained.
        sampled: versions that sampled something; one that is not found is none of its ancestors.
    """
    wanted, found = set(sampled), dict[str, int]()
    version: str | None = trained
    # A chain is as long as its run, so it is followed no further than the oldest version that was asked for.
    for lag in range(_LONGEST):
        if version is None or found.keys() >= wanted:
            break
        if version in wanted:
            found[version] = lag
        version = _parent(ledger, version)
    return found


_LONGEST = 100_000


def _parent(ledger: LedgerHandle, version: str) -> str | None:
    bodies = [event.body for event in ledger.read_stream(f"model-{version}")]
    return next((body.parent for body in bodies if isinstance(body, ModelVersionPublished)), None)
