"""The ticket desk: a small world in which a policy does what a rule asks for about tickets that nobody has handled."""

from collections.abc import Sequence

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from training.worlds.source import TaskQuery, WorldSource
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.opportunities import OPPORTUNITIES
from training.worlds.ticket_desk.scripts import SCRIPTS
from training.worlds.ticket_desk.synthesis import tasks
from training.worlds.ticket_desk.world import TicketDesk

__all__ = ["SOURCE", "TicketDesk"]


def _tasks(query: TaskQuery) -> Sequence[BundleDraft]:
    families, level = query.options.get("families", False), query.options.get("level")
    if unknown := set(query.options) - {"families", "level"}:
        raise SettingsError(f"the ticket desk takes the options families and level; seen {', '.join(sorted(unknown))}")
    if not isinstance(families, bool) or not (level is None or (isinstance(level, int) and not isinstance(level, bool))):
        raise SettingsError(f"families is {families!r} and level {level!r}; allowed: true or false, and a whole number")
    if level is not None and not families:
        raise SettingsError("level is given without families; the plain reminder tasks have no levels")
    return tasks(query.count, query.seed, level=level) if families else generate(query.count, seed=query.seed)


SOURCE = WorldSource(
    "ticket_desk",
    open=lambda settings, options: TicketDesk(),
    tasks=lambda world, query, settings: _tasks(query),
    verifiers=(
        ("desk_conditions", "program"), ("end_state", "state_diff"), ("desk_without_cooldown", "program"),
        ("desk_without_side_effects", "program"), ("desk_any_mail", "program"),
    ),
    scripts=SCRIPTS,
    opportunities=OPPORTUNITIES,
)  # fmt: skip
"""The desk as experiments open it; with the option `families` its tasks are of many families of rules, at the `level` or at all."""
