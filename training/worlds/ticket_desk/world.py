"""The ticket desk as a world: reset, call, snapshot, restore, fork and compare, all exact and without any effect outside the state."""

import hashlib
import inspect
from pathlib import Path
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, parse, validated_bytes
from ledger.errors import BundleError, WorldFailed
from training.worlds import Diff, Observation, Snapshot, ToolCall
from training.worlds.difference import differences
from training.worlds.ticket_desk.schemas import PARAMETERS, PLAIN, shown_schemas
from training.worlds.ticket_desk.state import DeskState, material_of, state_of, view_of
from training.worlds.ticket_desk.tools import apply
from training.worlds.ticket_desk.user import Respond, keyword_user

_VERSIONED = ("state.py", "user.py", "schemas.py", "arguments.py", "tools.py", "world.py")


class TicketDesk:
    """The ticket desk.

    Args:
        respond: how the user behind a request answers; one that is backed by a model goes here.

    Attributes:
        name: `ticket_desk`.
        version: hex SHA-256 of `source`.
        source: the text of the files that decide its states and answers, and of the user's file where it is another.
        fidelity: `exact`.
    """

    name = "ticket_desk"
    fidelity = "exact"

    def __init__(self, *, respond: Respond = keyword_user) -> None:
        self._respond = respond
        folder = Path(__file__).parent
        files = [folder / name for name in _VERSIONED]
        if (own := Path(inspect.getfile(respond))).parent != folder:
            files.append(own)
        self.source = "\n".join(f"# file: {file.name}\n{file.read_text(encoding='utf-8')}" for file in files)
        self.version = hashlib.sha256(self.source.encode()).hexdigest()

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        """OpenAI tool schemas of the tools that the task names as `request["tools"]`, else of the five plain ones; the same for every turn.

        Raises:
            BundleError: the task names a tool that the desk does not have.
        """
        names = draft.request.get("tools", PLAIN)
        if unknown := [name for name in names if name not in PARAMETERS]:
            raise BundleError(f"bundle {draft.name!r} names the tools {unknown}; there are {', '.join(PARAMETERS)}")
        return shown_schemas(names)

    def reset(self, draft: BundleDraft, *, seed: int) -> DeskState:
        """The initial state of the task; the desk has no randomness, so `seed` does not matter.

        Raises:
            BundleError: the draft is for another world or its initial state is not a desk's.
        """
        if draft.world != self.name:
            raise BundleError(f"bundle {draft.name!r} is for world {draft.world!r}; allowed: {self.name}")
        return state_of(draft.initial_state)

    def call(self, state: DeskState, call: ToolCall) -> tuple[DeskState, Observation]:
        """The state after the call, and the answer as compact JSON text; `state` itself is unchanged."""
        return apply(state, call, respond=self._respond)

    def snapshot(self, state: DeskState) -> Snapshot:
        """The state's canonical bytes under their own digest."""
        return Snapshot(self.digest(state), canonical_bytes(view_of(state)))

    def restore(self, snapshot: Snapshot) -> DeskState:
        """The state that was put to rest.

        Raises:
            WorldFailed: the bytes are not those that `snapshot_id` names.
        """
        seen = hashlib.sha256(snapshot.data).hexdigest()
        if seen != snapshot.snapshot_id:
            raise WorldFailed(f"snapshot {snapshot.snapshot_id} holds bytes with digest {seen}")
        return state_of(parse(snapshot.data))

    def fork(self, snapshot: Snapshot, n: int) -> list[DeskState]:
        """`n` states, each equal to the snapshot; states are values, so a call on one leaves the others alone."""
        return [self.restore(snapshot)] * n

    def view(self, state: DeskState) -> Any:
        """The whole state as JSON: tickets, owners and outbox keyed by id, call_log, clock, and where there are some desk and user."""
        return view_of(state)

    def material(self, view: Any) -> Any:
        """Tickets, owners and mails counted by ticket and address; see `state.material_of` for what is left out."""
        return material_of(view)

    def diff(self, before: DeskState, after: DeskState) -> Diff:
        """Rows added, removed and columns changed, with pointers such as `/tickets/T104/note` as paths."""
        return differences(view_of(before), view_of(after))

    def digest(self, state: DeskState) -> str:
        """Hex SHA-256 of the canonical form of the state's view."""
        # A state holds only text that was checked when it came in, so the view needs no second walk.
        return hashlib.sha256(validated_bytes(view_of(state), integers=False)).hexdigest()
