"""Everything outside that a task depends on is named by an exact version or a digest. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

PACKAGES = ("dependencies", "requirements", "packages", "wheel", "wheels", "package")
IMAGES = ("image", "images", "container")
MODELS = ("judge_model", "simulator_model", "user_model")
_EXACT = re.compile(r"[A-Za-z0-9._-]+(\[[\w,.-]+\])?(==|===)[A-Za-z0-9.!+_-]+")
_COMMIT = re.compile(r"@[0-9a-f]{40}(#.*)?$")
_DIGEST = re.compile(r"(@|#|^)sha256[:=][0-9a-f]{64}$")
_VERSIONED_MODEL = re.compile(r"[:@].+|-\d{4}|[0-9a-f]{40,}")


@answers("static.dependency_pinning")
def static_dependency_pinning(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether each dependency that spec, provenance or request declares is pinned.

    A package is pinned by `==`, a commit of 40 digits or a SHA-256; an image by a SHA-256; a judging or user-playing model by a version.

    Source: OpenEnv RFC 008, static.dependency_pinning.
    """
    draft = subject.draft
    declared = [*_declared(draft.provenance, "provenance"), *_declared(draft.spec, "spec"), *_declared(draft.request, "request")]
    faults = [
        {"place": place, "seen": text, "allowed": allowed}
        for place, kind, text in declared
        if (allowed := _unpinned(kind, text)) is not None
    ]
    measured = {"declared": [text for _, _, text in declared]}
    remedy = "name the exact version, commit or digest that the task was made with"
    return [judged("static.dependency_pinning", faults, why="a dependency is not pinned", remedy=remedy, measured=measured)]


def _declared(value: Any, place: str) -> Iterator[tuple[str, str, str]]:
    """(place, kind, text) of every dependency below `value`."""
    if isinstance(value, Mapping):
        for key, item in value.items():
            kind = next((kind for names, kind in ((PACKAGES, "package"), (IMAGES, "image"), (MODELS, "model")) if key in names), None)
            if kind is not None:
                yield from ((f"{place}.{key}", kind, text) for text in _texts(item))
            else:
                yield from _declared(item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _declared(item, f"{place}[{index}]")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (f"{name}{version if str(version)[:1] in '=<>~!@' else f'=={version}'}" for name, version in value.items())
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _unpinned(kind: str, text: str) -> str | None:
    """What would have been allowed, or None for a dependency that is pinned."""
    if _DIGEST.search(text):
        return None
    if kind == "image":
        return "image@sha256:<64 digits>"
    if kind == "model":
        return None if _VERSIONED_MODEL.search(text) else "model@version"
    exact = _EXACT.fullmatch(text.replace(" ", "")) and not text.endswith(("==latest", "==*")) and "*" not in text
    return None if exact or _COMMIT.search(text) else "name==version, or a commit or SHA-256"
