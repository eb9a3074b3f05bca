"""The contract of every family of methods, once for all."""

import inspect
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import torch

from audit.bundle_checks import bundle_checks
from audit.claim_checks import claim_checks
from audit.probes import probes
from audit.rollout_checks import rollout_checks
from audit.scanners import scanners
from audit.statistics import statistics
from audit.update_checks import update_checks
from audit.world_checks import world_checks
from ledger.errors import MethodError
from ledger.methods import Family
from training.advantages import Advantage, advantages
from training.diagnostics import Diagnostic, diagnostics
from training.filters import Filter, filters
from training.hooks import hooks
from training.objectives import Objective, objectives
from training.proposers import proposers
from training.rewards import Reward, rewards
from training.verifiers import verifiers
from training.weightings import Weighting, weightings

ROOT = Path(__file__).resolve().parent.parent
PROTOCOLS: tuple[tuple[Family[Any], type], ...] = (
    (rewards, Reward), (filters, Filter), (advantages, Advantage), (weightings, Weighting), (objectives, Objective), (diagnostics, Diagnostic),
)  # fmt: skip
FAMILIES: tuple[Family[Any], ...] = (
    proposers,
    verifiers,
    bundle_checks,
    claim_checks,
    rollout_checks,
    scanners,
    world_checks,
    update_checks,
    hooks,
    statistics,
    probes,
    *(family for family, _ in PROTOCOLS),
)
METHODS = [(family, name) for family in FAMILIES for name in family.names()]
TYPED = [(family, protocol, name) for family, protocol in PROTOCOLS for name in family.names()]


@pytest.mark.parametrize(("family", "name"), METHODS, ids=[f"{family.package}.{name}" for family, name in METHODS])
def test_a_method_is_a_function_named_as_its_file(family: Family[Any], name: str) -> None:
    method = family[name]
    assert method.__name__ == name
    assert (inspect.getdoc(method) or "").strip()
    required = [p for p in inspect.signature(method).parameters.values() if p.kind is not p.KEYWORD_ONLY]
    optional = [p for p in inspect.signature(method).parameters.values() if p.kind is p.KEYWORD_ONLY]
    assert all(p.default is p.empty for p in required)
    assert all(p.default is not p.empty for p in optional)


@pytest.mark.parametrize("family", FAMILIES, ids=[family.package for family in FAMILIES])
def test_all_methods_of_a_family_take_the_same_arguments(family: Family[Any]) -> None:
    taken = {
        name: [p.name for p in inspect.signature(family[name]).parameters.values() if p.kind is not p.KEYWORD_ONLY]
        for name in family.names()
    }
    assert len({tuple(names) for names in taken.values()}) == 1, taken


def hints(function: Any, names: list[str]) -> dict[str, Any]:
    """Annotations of the named parameters and of the return value; objectives name torch without importing it."""
    found = get_type_hints(function, globalns={**function.__globals__, "torch": torch})
    return {name: found[name] for name in [*names, "return"]}


@pytest.mark.parametrize(("family", "protocol", "name"), TYPED, ids=[f"{family.package}.{name}" for family, _, name in TYPED])
def test_a_method_has_the_signature_of_its_family(family: Family[Any], protocol: Any, name: str) -> None:
    method, signature = family[name], protocol.__call__
    names = [p.name for p in inspect.signature(signature).parameters.values()][1:]
    assert [p.name for p in inspect.signature(method).parameters.values() if p.kind is not p.KEYWORD_ONLY] == names
    assert hints(method, names) == hints(signature, names)


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, _, name in TYPED], ids=[f"{f.package}.{n}" for f, _, n in TYPED])
def test_a_method_names_its_source_and_has_a_test_of_its_own(family: Family[Any], name: str) -> None:
    assert "\nSource: " in (inspect.getdoc(family[name]) or "")
    assert (ROOT / "tests" / family.package.replace(".", "/") / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", weightings.names())
def test_a_weighting_declares_whether_cutting_rollouts_into_rows_changes_it(name: str) -> None:
    assert isinstance(getattr(weightings[name], "slice_invariant", None), bool)


def test_binding_names_what_is_wrong() -> None:
    with pytest.raises(MethodError, match="no method 'nothing'; it has all_conditions"):
        rewards.bind("nothing")
    with pytest.raises(MethodError, match="takes no parameter 'scale'"):
        rewards.bind("all_conditions", scale=2)


def test_a_reference_depends_on_name_parameters_and_source() -> None:
    bound = verifiers.bind("bfcl_checker")
    assert bound.ref.method_id == verifiers.bind("bfcl_checker").ref.method_id
    assert bound.ref.method_id != verifiers.bind("bfcl_checker", wheel="bfcl-eval==0").ref.method_id
    assert len({verifiers.bind(name).ref.method_id for name in verifiers.names()}) == len(verifiers.names())


def test_a_source_holds_what_the_method_imports_from_its_package() -> None:
    source = verifiers.bind("desk_conditions").source
    assert source.startswith("# file: training.verifiers.desk_conditions\n")
    assert "# file: training.verifiers._desk_rules\n" in source
    assert "# file: training.worlds.bfcl.worker\n" in verifiers.bind("bfcl_checker").source
