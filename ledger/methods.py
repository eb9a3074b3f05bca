"""A family of methods is a folder: one file a method, file name = function name = name in a recipe."""

import hashlib
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
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
        """Source text of the method's file."""
        self[name]
        return inspect.getsource(importlib.import_module(f"{self.package}.{name}"))

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
