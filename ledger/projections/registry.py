"""All read models by name. Pure."""

from types import ModuleType
from typing import cast

from ledger.projections import bundles, calls, groups, rewards, rollouts, verdicts
from ledger.projections.read_model import ReadModel

# What others refer to comes first; queries read in the other direction.
_MODULES: tuple[ModuleType, ...] = (bundles, groups, rollouts, calls, verdicts, rewards)
MODELS: dict[str, ReadModel] = {model.NAME: model for model in (cast(ReadModel, module) for module in _MODULES)}
