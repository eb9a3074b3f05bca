"""Files below the data folder that may hold a subject's text outside the database: listed, and deleted where asked. Deletes files."""

from dataclasses import dataclass
from pathlib import Path

PLACES: dict[str, tuple[str, ...]] = {
    "export": ("exports",),
    "expectations page": ("data_docs", "great_expectations", "gx"),
    "engine log": ("engine",),
    "gateway log": ("gateway",),
    "Dagster run": ("dagster",),
    "checkpoint of a model": ("checkpoints",),
    "cached state": ("reference_ends",),
}
"""What keeps text outside the database, by folder of the data folder."""
DERIVED = ("export", "expectations page")
"""Made again from the ledger by one command, without what is shredded."""


@dataclass(frozen=True)
class Leftover:
    """A file that may hold text: its path, which of `PLACES` it belongs to, its size in bytes."""

    path: Path
    kind: str
    size: int

    @property
    def derived(self) -> bool:
        """Whether deleting it loses nothing, because it can be made again from the ledger."""
        return self.kind in DERIVED


def leftovers(data_dir: Path) -> list[Leftover]:
    """All files that may hold text, by kind and path. Which of them held a shredded subject's cannot be told once its key is gone."""
    return [
        Leftover(path, kind, path.lstat().st_size)
        for kind, folders in PLACES.items()
        for folder in folders
        for path in sorted((data_dir / folder).rglob("*"))
        if path.is_file() and not path.is_symlink()
    ]


def delete_derived(found: list[Leftover]) -> list[Leftover]:
    """Those that were deleted: the derived files among `found`, to be made again by the command that wrote them."""
    gone = [item for item in found if item.derived]
    for item in gone:
        item.path.unlink(missing_ok=True)
    return gone
