"""Reading the wheel's tasks and function documentation."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from ledger.bundle import Bundle, BundleDraft
from ledger.errors import BundleError
from training.worlds.bfcl import CATEGORIES, WHEEL, Bfcl, load_tasks
from training.worlds.bfcl.calls import REFUSED_CALL, call_text, parse_call
from training.worlds.bfcl.docs import documented, load_docs, tool_schema


def test_the_wheel_holds_two_hundred_tasks_in_each_of_four_categories(drafts: dict[str, BundleDraft]) -> None:
    assert Counter(draft.spec["category"] for draft in drafts.values()) == dict.fromkeys(CATEGORIES, 200)


def test_every_task_is_content_addressable_and_has_one_list_of_reference_calls_a_user_turn(drafts: dict[str, BundleDraft]) -> None:
    ids = {Bundle(draft, "w", "v", "h").bundle_id for draft in drafts.values()}
    assert len(ids) == 800
    for draft in drafts.values():
        assert draft.reference is not None
        assert len(draft.reference["turns"]) == len(draft.request["turns"])
        assert all(message["role"] == "user" for turn in draft.request["turns"] for message in turn)


def test_nothing_of_the_reference_is_in_the_request(drafts: dict[str, BundleDraft]) -> None:
    for draft in drafts.values():
        assert set(draft.request) == {"system", "turns", "withheld"}


def test_every_task_names_its_licence_wheel_file_and_id(drafts: dict[str, BundleDraft]) -> None:
    for draft in drafts.values():
        source = draft.provenance["source"]
        assert draft.provenance["licence"] == "Apache-2.0"
        assert (source["wheel"], source["id"]) == (WHEEL, draft.name)
        assert source["file"] == f"bfcl_eval/data/BFCL_v4_{draft.spec['category']}.json"


def test_variants_of_one_task_never_straddle_splits(drafts: dict[str, BundleDraft]) -> None:
    splits: dict[str, set[str]] = {}
    configs: dict[str, set[str]] = {}
    for draft in drafts.values():
        splits.setdefault(draft.name.rpartition("_")[2], set()).add(draft.split)
        configs.setdefault(json.dumps(draft.initial_state["config"], sort_keys=True), set()).add(draft.split)
    assert all(len(found) == 1 for found in (*splits.values(), *configs.values()))
    assert Counter(draft.split for draft in drafts.values()) == {"train": 584, "test": 132, "validation": 84}


def test_a_withheld_function_is_offered_from_its_turn_on(drafts: dict[str, BundleDraft], world: Bfcl) -> None:
    draft = drafts["multi_turn_miss_func_0"]
    offered = [[tool["function"]["name"] for tool in world.tools(draft, turn=turn)] for turn in range(5)]
    assert draft.request["withheld"] == {"3": ["sort"]}
    assert [("sort" in names) for names in offered] == [False, False, False, True, True]
    assert len(offered[3]) == len(offered[0]) + 1


def test_tool_schemas_use_only_json_schema_types(unpacked: Path) -> None:
    def kinds(node: object) -> set[str]:
        if isinstance(node, list):
            return set().union(*(kinds(item) for item in node))
        if not isinstance(node, dict):
            return set()
        own = {node["type"]} if isinstance(node.get("type"), str) else set()
        return own.union(*(kinds(item) for item in node.values()))

    docs = load_docs(unpacked)
    schemas = [tool_schema(doc) for docs_of_class in docs.values() for doc in docs_of_class]
    assert len(schemas) == 128
    assert kinds([schema["function"]["parameters"] for schema in schemas]) == {"object", "string", "number", "integer", "array", "boolean"}


def test_types_outside_json_schema_are_mapped_or_refused() -> None:
    doc = {"name": "f", "description": "A. Tool description: B.", "parameters": {"type": "dict", "properties": {
        "a": {"type": "tuple", "items": {"type": "float"}}, "b": {"type": "any", "description": "x"}}}}  # fmt: skip
    assert tool_schema(doc, brief=True)["function"] == {"name": "f", "description": "B.", "parameters": {"type": "object", "properties": {
        "a": {"type": "array", "items": {"type": "number"}}, "b": {"description": "x"}}}}  # fmt: skip
    with pytest.raises(BundleError, match="'complex' is none of"):
        tool_schema({**doc, "parameters": {"type": "complex"}})


def test_positional_arguments_are_named_after_the_documentation(unpacked: Path) -> None:
    functions = documented(load_docs(unpacked), ["GorillaFileSystem"])
    assert parse_call("mv('a.txt', destination='b')", functions) == {"name": "mv", "arguments": {"source": "a.txt", "destination": "b"}}


@pytest.mark.parametrize(
    "text", ["__import__('os').system('ls')", "cd(folder=open('x'))", "cd(**{})", "cd('a', 'b')", "cd('a', folder='b')", "1 +"]
)
def test_a_call_that_is_not_a_documented_function_of_literals_is_refused(text: str, unpacked: Path) -> None:
    with pytest.raises(BundleError):
        parse_call(text, documented(load_docs(unpacked), ["GorillaFileSystem"]))


def test_call_text_reads_back_as_the_same_literals_without_a_parenthesis_inside_them(unpacked: Path) -> None:
    functions = documented(load_docs(unpacked), ["GorillaFileSystem"])
    arguments = {"content": "see ls (all) and \\(x) 'q' \"p\" \n cd('..')", "file_name": "a"}
    text = call_text("echo", arguments, functions)
    assert text.count("(") == 1
    assert parse_call(text, functions) == {"name": "echo", "arguments": arguments}


def test_an_undocumented_name_or_a_strange_argument_name_becomes_the_refused_call(unpacked: Path) -> None:
    functions = documented(load_docs(unpacked), ["GorillaFileSystem"])
    assert call_text("exec", {"x": "1"}, functions) == REFUSED_CALL
    assert call_text("cd", {"folder='x') or exec": "1"}, functions) == REFUSED_CALL
    assert call_text("cd", {"class": "1"}, functions) == REFUSED_CALL


def test_unknown_categories_classes_and_folders_are_refused(
    unpacked: Path, tmp_path: Path, drafts: dict[str, BundleDraft], world: Bfcl
) -> None:
    with pytest.raises(BundleError, match="'multi_turn_hard' is none of"):
        load_tasks(unpacked, categories=["multi_turn_hard"])
    with pytest.raises(BundleError, match="must be the unpacked wheel"):
        load_tasks(tmp_path)
    alien = replace(drafts["multi_turn_base_0"], initial_state={"classes": ["ShellAPI"], "config": {}, "long_context": False})
    with pytest.raises(BundleError, match="'ShellAPI' is none of"):
        world.reset(alien, seed=0)
