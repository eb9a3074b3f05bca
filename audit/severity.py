"""Severity policies: what a failed check means, with thresholds, as versioned data. Reads files."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

from ledger.canonical import digest
from ledger.errors import SettingsError
from ledger.events.task import Severity

FOLDER = Path(__file__).parent / "policies"
DEFAULT = "v1"
_TABLES = {"name", "severity", "thresholds", "required", "not_run"}


@dataclass(frozen=True)
class Policy:
    """A severity policy.

    Attributes:
        name: its version, such as `v1`.
        severity: check id to fail, warn or advisory; the ids are all that a result lists.
        thresholds: numbers that checks compare with, by name.
        required: ids that must pass: a skip of one of them blocks as a failure does.
        not_run: ids that nothing here implements, with the reason that a result gives.
    """

    name: str
    severity: Mapping[str, Severity]
    thresholds: Mapping[str, Any]
    required: frozenset[str]
    not_run: Mapping[str, str]

    @cached_property
    def policy_id(self) -> str:
        """Hex SHA-256 over all of it."""
        return digest(
            {
                "name": self.name, "severity": dict(self.severity), "thresholds": dict(self.thresholds), "required": sorted(self.required),
                "not_run": dict(self.not_run),
            }
        )  # fmt: skip

    def blocks(self, check_id: str, status: str, *, dependent: bool = False) -> bool:
        """Whether a result stands in the way of admission.

        Args:
            check_id: an id of the policy.
            status: pass, fail, skip or error.
            dependent: the check was skipped because another one did not pass, which blocks by itself.
        """
        if status in ("fail", "error"):
            return self.severity[check_id] == "fail"
        return status == "skip" and check_id in self.required and not dependent


def policy_names(kind: str = "") -> list[str]:
    """Names of all policies of a kind of check, sorted; without one, of checks of worlds and bundles.

    Args:
        kind: folder of the policies, such as `rollout` or `update`.
    """
    return sorted(path.stem for path in (FOLDER / kind).glob("*.toml"))


def load_policy(name: str = DEFAULT, *, kind: str = "") -> Policy:
    """The policy of that name.

    Args:
        kind: as for `policy_names`.
    Raises:
        SettingsError: there is none, or its file has a table, a severity or an id that does not fit.
    """
    if name not in policy_names(kind):
        raise SettingsError(f"no severity policy {name!r}; there are {', '.join(policy_names(kind))}")
    return policy_of(tomllib.loads((FOLDER / kind / f"{name}.toml").read_text(encoding="utf-8")))


def policy_of(content: Mapping[str, Any]) -> Policy:
    """The policy that a parsed file holds.

    Raises:
        SettingsError: a table, a severity or an id does not fit.
    """
    if set(content) != _TABLES:
        raise SettingsError(f"a severity policy has the tables {', '.join(sorted(_TABLES))}; seen {', '.join(sorted(content))}")
    levels = get_args(Severity)
    for check_id, level in content["severity"].items():
        if level not in levels:
            raise SettingsError(f"severity of {check_id} is {level!r}; allowed: {', '.join(levels)}")
    for check_id in (*content["required"], *content["not_run"]):
        if check_id not in content["severity"]:
            raise SettingsError(f"policy {content['name']!r} names {check_id!r} without a severity")
    return Policy(
        content["name"], dict(content["severity"]), dict(content["thresholds"]), frozenset(content["required"]), dict(content["not_run"])
    )
