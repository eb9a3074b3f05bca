"""A family of methods is a folder: one file a method, file name = function name = name in a recipe."""

import ast
import hashlib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar, cast

from ledger.canonical import canonical_bytes, digest
from ledger.errors import MethodError

Method = TypeVar("Method", bound=Callable[..., Any])
P = ParamSpec("P")


@dataclass(frozen=True)
class MethodRef:
    """What an event stores of a bound method: its family, name, parameters and the digest of its source."""

    family: str
    name: str
    params: Mapping[str, Any]
    source_digest: str

    @property
    def method_id(self) -> str:
        """Hex SHA-256 over family, name, parameters and source digest."""
        return digest({"family": self.family, "name": self.name, "params": dict(self.params), "source": self.source_digest})

    def as_json(self) -> dict[str, Any]:
        """The reference as a JSON object with its id."""
        return {
            "family": self.family, "name": self.name, "params": dict(self.params),
            "source_digest": self.source_digest, "method_id": self.method_id,
        }  # fmt: skip


@dataclass(frozen=True)
class Bound(Generic[Method]):
    """A method with its parameters fixed, and the reference that names it."""

    call: Method
    ref: MethodRef
    source: str


def _sources(module: str) -> list[tuple[str, str]]:
    """(module, text) of a module and of what it imports from its own top-level package, the module first, then by name."""
    top = module.partition(".")[0]
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        spec = None if name in found else importlib.util.find_spec(name)
        if spec is None or spec.origin is None:
            continue
        found[name] = Path(spec.origin).read_text(encoding="utf-8")
        waiting += _imported(found[name], top)
    return [(module, found.pop(module)), *sorted(found.items())]


# Methods of a family share most of what they import, so each text is parsed once.
@lru_cache(maxsize=1024)
def _imported(text: str, top: str) -> tuple[str, ...]:
    """The modules of package `top` that a source text imports."""
    modules: list[str] = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names if alias.name.partition(".")[0] == top]
        elif isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == top:
            modules += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if _is_module(node.module, alias.name))]
    return tuple(modules)


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package)
    return spec is not None and spec.submodule_search_locations is not None and importlib.util.find_spec(f"{package}.{name}") is not None


class Family(Generic[Method]):
    """The methods in one package folder, listed by file and imported when asked for."""

    def __init__(self, package: str) -> None:
        self.package = package

    def names(self) -> list[str]:
        """Names of all methods of the family, sorted."""
        folder = importlib.import_module(self.package).__path__
        return sorted(module.name for module in pkgutil.iter_modules(folder) if not module.name.startswith("_") and not module.ispkg)

    def __getitem__(self, name: str) -> Method:
        if name not in self.names():
            raise MethodError(f"{self.package} has no method {name!r}; it has {', '.join(self.names())}")
        return cast(Method, getattr(importlib.import_module(f"{self.package}.{name}"), name))

    def source(self, name: str) -> str:
        """Source text of the method: its own file, then every file of its top-level package that it imports, directly or not."""
        self[name]
        return "\n".join(f"# file: {module}\n{text}" for module, text in _sources(f"{self.package}.{name}"))

    def bind(self, name: str, **params: Any) -> Bound[Method]:
        """The method `name` with its keyword parameters fixed.

        Raises:
            MethodError: no such method, or a parameter that it does not take or that has no canonical form.
        """
        method = self[name]
        known = {key: p for key, p in inspect.signature(method).parameters.items() if p.kind is p.KEYWORD_ONLY}
        for key in params:
            if key not in known:
                raise MethodError(f"{self.package}.{name} takes no parameter {key!r}; it takes {', '.join(sorted(known)) or 'none'}")
        canonical_bytes(params)
        source = self.source(name)
        ref = MethodRef(self.package, name, dict(params), hashlib.sha256(source.encode()).hexdigest())
        return Bound(cast(Method, partial(method, **params)) if params else method, ref, source)
