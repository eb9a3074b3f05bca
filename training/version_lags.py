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
    lag = 0
    while version is not None:
        if version in wanted:
            found[version] = lag
        # A chain is as long as its run, so it is followed no further than the oldest version that was asked for.
        version, lag = (None if found.keys() >= wanted else _parent(ledger, version)), lag + 1
    return found


def _parent(ledger: LedgerHandle, version: str) -> str | None:
    bodies = [event.body for event in ledger.read_stream(f"model-{version}")]
    return next((body.parent for body in bodies if isinstance(body, ModelVersionPublished)), None)
