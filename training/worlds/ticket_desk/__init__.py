"""The ticket desk: a small world in which a policy does what a rule asks for about tickets that nobody has handled."""

from collections.abc import Sequence

from ledger.bundle import BundleDraft
from ledger.errors import SettingsError
from training.worlds.source import TaskQuery, WorldSource
from training.worlds.ticket_desk.bundles import generate
from training.worlds.ticket_desk.opportunities import OPPORTUNITIES
from training.worlds.ticket_desk.scripts import SCRIPTS
from training.worlds.ticket_desk.synthesis import JUDGEMENTS, ROW_KINDS, slice_tasks, tasks
from training.worlds.ticket_desk.walks import WALKS
from training.worlds.ticket_desk.world import TicketDesk

__all__ = ["SOURCE", "TicketDesk"]


_OPTIONS = ("families", "level", "split", "slice", "judging", "rows")


def _tasks(query: TaskQuery) -> Sequence[BundleDraft]:
    families, level = query.options.get("families", False), query.options.get("level")
    if unknown := set(query.options) - set(_OPTIONS):
        raise SettingsError(f"the ticket desk takes the options {', '.join(_OPTIONS)}; seen {', '.join(sorted(unknown))}")
    if not isinstance(families, bool) or not (level is None or (isinstance(level, int) and not isinstance(level, bool))):
        raise SettingsError(f"families is {families!r} and level {level!r}; allowed: true or false, and a whole number")
    if level is not None and not families:
        raise SettingsError("level is given without families; the plain reminder tasks have no levels")
    split, apart, judging, rows = (query.options.get(name) for name in _OPTIONS[2:])
    if split is None and (apart is not None or judging is not None or rows is not None):
        raise SettingsError(
            f"slice {apart!r}, judging {judging!r} or rows {rows!r} is given without split; allowed: train, validation or test"
        )
    if split is None:
        return tasks(query.count, query.seed, level=level) if families else generate(query.count, seed=query.seed)
    if (
        not families
        or level is None
        or split not in ("train", "validation", "test")
        or not set(judging or ()) <= set(JUDGEMENTS)
        or rows not in (None, *ROW_KINDS)
    ):
        raise SettingsError(
            f"split is {split!r} with families {families!r}, level {level!r}, judging {judging!r} and rows {rows!r}; allowed:"
            f" train, validation or test with families true, a level, judging a list of {', '.join(JUDGEMENTS)}, and rows one of"
            f" {', '.join(ROW_KINDS)}"
        )
    return slice_tasks(query.count, query.seed, split, apart, level=level, judging=judging or JUDGEMENTS, rows=rows or ROW_KINDS[0])


SOURCE = WorldSource(
    "ticket_desk",
    open=lambda settings, options: TicketDesk(),
    tasks=lambda world, query, settings: _tasks(query),
    verifiers=(
        ("desk_conditions", "program"), ("end_state", "state_diff"), ("desk_without_cooldown", "program"),
        ("desk_without_side_effects", "program"), ("desk_any_mail", "program"),
    ),
    choices=(("desk_tickets", "program"),),
    scripts={**SCRIPTS, **WALKS},
    opportunities=OPPORTUNITIES,
)  # fmt: skip
"""The desk as experiments open it; with the option `families` its tasks are of many families of rules, at the `level` or at all.

With `split` they are for one purpose: `train`, or `validation` or `test` of a `slice`, which says what alone is held out: nothing but
the draw (`instances`), or `families`, `wordings` or `names`. `judging` keeps to families in which the policy has just these of `cooldown`,
`age`, `status` and `other` to judge by itself; what else the rule says the list of tickets filters. With `rows` = "drawn" tickets are
drawn as they come in the place of being put on and beside every limit."""
