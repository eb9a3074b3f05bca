"""The ticket desk: a small world in which a policy reminds the owners of tickets that nobody has handled."""

from training.worlds.source import WorldSource
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.scripts import SCRIPTS
from training.worlds.ticket_desk.world import TicketDesk

__all__ = ["SOURCE", "TicketDesk"]

SOURCE = WorldSource(
    "ticket_desk",
    open=lambda settings, options: TicketDesk(),
    tasks=lambda world, query, settings: generate(query.count, seed=query.seed),
    verifiers=(
        ("desk_conditions", "program"), ("end_state", "state_diff"), ("desk_without_cooldown", "program"),
        ("desk_without_side_effects", "program"), ("desk_any_mail", "program"),
    ),
    scripts=SCRIPTS,
)  # fmt: skip
"""The desk as experiments open it."""
