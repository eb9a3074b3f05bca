"""The conventions that a machine can check, over every file of the five packages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("ledger", "training", "audit", "pipelines", "ui", "migrations")
FILES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
MAY_CATCH_ALL = {"training/rollout/collect.py", "audit/run.py"}
FORBIDDEN_NAMES = {"utils", "helpers", "manager", "common", "types", "util", "helper", "misc"}
MAX_FILE, MAX_FUNCTION, MAX_POSITIONAL = 400, 70, 5
# Each runs in a process of its own beside foreign code, whose failures of any kind are its answers.
FOREIGN_CODE = {
    "training/worlds/bfcl/worker.py",
    "training/worlds/worker_loop.py",
    "training/worlds/python_class/worker.py",
    "training/worlds/python_class/schemas.py",
    "training/verifiers/_check_runner.py",
    "training/worlds/verifiers_tasks/worker.py",
}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions(tree: ast.AST) -> Iterator[Function]:
    yield from (node for node in ast.walk(tree) if isinstance(node, Function))


def public(tree: ast.Module) -> Iterator[Function | ast.ClassDef]:
    """Public definitions: those of a module and of its public classes; overrides of dunder methods and properties included."""
    for node in tree.body:
        if isinstance(node, Function | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from (item for item in node.body if isinstance(item, Function) and not item.name.startswith("_"))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_file_keeps_the_conventions(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    told: list[str] = []
    if ast.get_docstring(tree) is None:
        told.append("no module docstring")
    if len(text.splitlines()) > MAX_FILE:
        told.append(f"{len(text.splitlines())} lines; allowed: {MAX_FILE}")
    if set(path.stem.split("_")) & FORBIDDEN_NAMES:
        told.append(f"named {path.stem}")
    for function in functions(tree):
        length = (function.end_lineno or 0) - function.lineno + 1
        positional = [arg.arg for arg in (*function.args.posonlyargs, *function.args.args) if arg.arg not in ("self", "cls")]
        if length > MAX_FUNCTION and not name_of(path).startswith("migrations/versions/"):
            told.append(f"{function.name} has {length} lines; allowed: {MAX_FUNCTION}")
        if len(positional) > MAX_POSITIONAL and function.name != "__init__":
            told.append(f"{function.name} has {len(positional)} parameters before `*`; allowed: {MAX_POSITIONAL}")
    told += [f"{node.name} has no docstring" for node in public(tree) if ast.get_docstring(node) is None and not _inherits_docs(tree, node)]
    if name_of(path) not in MAY_CATCH_ALL | FOREIGN_CODE:
        told += [f"line {handler.lineno} catches everything" for handler in _broad(tree)]
    told += [
        f"line {n} says {found[0]}" for n, line in enumerate(text.splitlines(), 1) if (found := re.search(r"\b(TODO|FIXME|XXX)\b", line))
    ]
    assert told == []


def _inherits_docs(tree: ast.Module, node: ast.AST) -> bool:
    return any(
        isinstance(outer, ast.ClassDef) and node in outer.body and any(getattr(base, "id", "") in ("Protocol",) for base in outer.bases)
        for outer in tree.body
    )


def _broad(tree: ast.AST) -> Iterator[ast.ExceptHandler]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = [node.type] if not isinstance(node.type, ast.Tuple) else node.type.elts
            if any(item is None or getattr(item, "id", "") in ("Exception", "BaseException") for item in caught):
                yield node


def test_only_tables_use_sqlmodel() -> None:
    users = {name_of(path) for path in FILES if re.search(r"^(from|import) sqlmodel", path.read_text(), re.MULTILINE)}
    assert users - {name for name in users if name.startswith("migrations/")} == {"ledger/tables.py", "ledger/view_tables.py"}


HEAVY = ("training/models/", "training/optimise/", "training/objectives/", "training/rollout/torch_")
"""Where all is torch; no command and no page imports these before it needs them."""


def test_heavy_libraries_are_imported_where_they_are_used() -> None:
    heavy = re.compile(r"^(from|import) (torch|vllm|transformers)\b", re.MULTILINE)
    found = [name_of(path) for path in FILES if heavy.search(path.read_text())]
    assert [name for name in found if not name.startswith(HEAVY)] == []


def test_tests_are_plain_modules_without_patching() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    assert [name_of(path) for path in tests if path.name == "__init__.py"] == []
    forbidden = re.compile(r"monkeypatch|unittest\.mock|mock\.patch")
    assert [name_of(path) for path in tests if path != Path(__file__) and forbidden.search(path.read_text())] == []


def test_pages_are_not_named_like_a_package_or_a_standard_module() -> None:
    import sys

    names = {path.stem for path in (ROOT / "ui").glob("*.py")} | {path.name for path in (ROOT / "ui").iterdir() if path.is_dir()}
    assert names & ({*PACKAGES, "types"} | sys.stdlib_module_names) == set()
