"""Names of subjects across ledgers: two ledgers may use one name for two subjects, so a subject abroad carries its ledger's id. Pure."""

import re

PUBLIC = "public"
"""Content that is nobody's has one name everywhere."""
_LEDGER_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def subject_abroad(subject_id: str, source_id: str, target_id: str) -> str:
    """The id in ledger `target_id` of what ledger `source_id` calls `subject_id`: `<its ledger>/<its id there>`, or as at home."""
    if subject_id == PUBLIC:
        return subject_id
    owner, _, rest = subject_id.partition("/")
    if not _LEDGER_ID.fullmatch(owner) or not rest:
        owner, rest = source_id, subject_id
    return rest if owner == target_id else f"{owner}/{rest}"


def kept_elsewhere(subject_id: str) -> bool:
    """Whether a subject belongs to another ledger, so that its key may have stayed there."""
    owner, _, rest = subject_id.partition("/")
    return bool(rest) and _LEDGER_ID.fullmatch(owner) is not None
