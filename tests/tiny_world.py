"""A lending library as small as a world can be, for tests of what must work in any world."""

import json
from typing import Any

from ledger.bundle import BundleDraft
from ledger.canonical import canonical_bytes, digest, parse
from training.worlds import Diff, Observation, Snapshot, ToolCall
from training.worlds.difference import differences


def tool(name: str, description: str, required: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    parameters = {"type": "object", "properties": {**required, **(optional or {})}, "required": list(required)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


TEXT = {"type": "string"}
TOOLS = [
    tool("find_books", "List the books.", {}, {"shelf": {"type": "string", "enum": ["north", "south"]}}),
    tool("find_reader", "Look up a reader by name.", {"name": TEXT}),
    tool("lend", "Lend a book to a reader.", {"book_id": TEXT, "reader_id": TEXT}),
    tool("give_back", "Take a book back.", {"book_id": TEXT}),
    tool("move", "Move a book to a shelf.", {"book_id": TEXT, "shelf": {"type": "string", "enum": ["north", "south"]}}),
    tool("post_notice", "Post a notice about a book.", {"book_id": TEXT, "text": TEXT}),
]
LIBRARY = {
    "books": {
        "B1": {"title": "Dune", "shelf": "north", "lent_to": None},
        "B2": {"title": "Emma", "shelf": "south", "lent_to": None},
        "B3": {"title": "Ulysses", "shelf": "north", "lent_to": "R2"},
    },
    "readers": {"R1": {"name": "Ada"}, "R2": {"name": "Ben"}},
    "notices": [],
    "log": [],
}


class Library:
    """Books, readers, notices that cannot be taken down, and a log that does not count."""

    name = "library"
    source = "library of the tests"
    version = digest(source)
    fidelity = "exact"

    def tools(self, draft: BundleDraft, *, turn: int) -> list[dict[str, Any]]:
        return TOOLS

    def reset(self, draft: BundleDraft, *, seed: int) -> Any:
        return parse(canonical_bytes(draft.initial_state))

    def call(self, state: Any, call: ToolCall) -> tuple[Any, Observation]:
        after = parse(canonical_bytes(state))
        after["log"].append(call.name)
        wanted = next((item["function"]["parameters"] for item in TOOLS if item["function"]["name"] == call.name), None)
        if wanted is None or not set(wanted["required"]) <= set(call.arguments) <= set(wanted["properties"]):
            return after, Observation("no", "invalid_arguments")
        answer = self._answer(after, call.name, dict(call.arguments))
        return after, Observation(json.dumps(answer)) if answer is not None else Observation("no", "not_found")

    def _answer(self, state: Any, name: str, given: dict[str, Any]) -> Any:
        books, readers = state["books"], state["readers"]
        if name == "find_books":
            return {"books": [{"id": key, **row} for key, row in books.items() if given.get("shelf") in (None, row["shelf"])]}
        if name == "find_reader":
            found = [key for key, row in readers.items() if row["name"] == given["name"]]
            return {"reader_id": found[0]} if found else None
        book = books.get(given["book_id"])
        if book is None:
            return None
        if name == "lend":
            if given["reader_id"] not in readers or book["lent_to"] is not None:
                return None
            book["lent_to"] = given["reader_id"]
        elif name == "give_back":
            if book["lent_to"] is None:
                return None
            book["lent_to"] = None
        elif name == "move":
            book["shelf"] = given["shelf"]
        else:
            state["notices"].append({"about": given["book_id"], "text": given["text"]})
        return {"done": name}

    def snapshot(self, state: Any) -> Snapshot:
        return Snapshot(self.digest(state), canonical_bytes(state))

    def restore(self, snapshot: Snapshot) -> Any:
        return parse(snapshot.data)

    def fork(self, snapshot: Snapshot, n: int) -> list[Any]:
        return [self.restore(snapshot) for _ in range(n)]

    def view(self, state: Any) -> Any:
        return parse(canonical_bytes(state))

    def material(self, view: Any) -> Any:
        return {key: value for key, value in view.items() if key != "log"}

    def diff(self, before: Any, after: Any) -> Diff:
        return differences(before, after)

    def digest(self, state: Any) -> str:
        return digest(state)


def library_task(name: str = "library_0", **state: Any) -> BundleDraft:
    """A task in the library: lend Emma to Ada."""
    return BundleDraft(
        name, "library", {"system": "You run a library.", "turns": [[{"role": "user", "content": "Lend Emma to Ada."}]]},
        {**LIBRARY, **state},
        reference={
            "turns": [
                [
                    {"name": "find_books", "arguments": {}},
                    {"name": "find_reader", "arguments": {"name": "Ada"}},
                    {"name": "lend", "arguments": {"book_id": "B2", "reader_id": "R1"}},
                ]
            ],
            "end_state": None,
        },
        provenance={"proposer": "by hand", "seed": None, "source": {}, "licence": "Apache-2.0"},
    )  # fmt: skip
