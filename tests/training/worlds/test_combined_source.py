"""Combined worlds as experiments open them."""

import pytest

from ledger.errors import SettingsError
from ledger.settings import Settings
from training.worlds.source import TaskQuery, source_of

OPTIONS = {"services": ["ticket_desk", "ticket_desk"]}


def test_two_desks_side_by_side_give_tasks_of_both() -> None:
    source = source_of("combined")
    world = source.open(Settings(), OPTIONS)
    first = source.tasks(world, TaskQuery(2, 5, OPTIONS), Settings())
    again = source.tasks(world, TaskQuery(2, 5, OPTIONS), Settings())
    assert list(first) == list(again)
    assert len(first) == 2
    for draft in first:
        assert set(draft.initial_state) == {"ticket_desk", "ticket_desk_2"}
        assert draft.initial_state["ticket_desk"]["state"] != draft.initial_state["ticket_desk_2"]["state"]
        called = {call["name"].partition("__")[0] for turn in (draft.reference or {})["turns"] for call in turn}
        assert called == {"ticket_desk", "ticket_desk_2"}


@pytest.mark.parametrize("services", [None, ["ticket_desk"], ["combined", "ticket_desk"], "ticket_desk", ["moon", "ticket_desk"]])
def test_services_are_two_or_more_worlds_that_there_are(services: object) -> None:
    with pytest.raises(SettingsError, match="option services is|no world 'moon'"):
        source_of("combined").open(Settings(), {"services": services})
