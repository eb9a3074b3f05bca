"""The bundle says what it is: name, request, initial state, versions of its parts, and where it is from. Pure."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from audit.bundle_checks import BundleSubject, CheckResult, answers, judged

_DIGEST = re.compile("[0-9a-f]{64}")


@answers("static.manifest")
def static_manifest(subject: BundleSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether every part that a manifest needs is there and of its form.

    Source: OpenEnv RFC 008, static.manifest.
    """
    draft, bundle = subject.draft, subject.bundle
    faults = []
    if not draft.name.strip():
        faults.append("the name is empty")
    if draft.world != subject.world.name:
        faults.append(f"the draft is for world {draft.world!r}; it is gated in {subject.world.name!r}")
    if bundle.world_id != subject.world.version:
        faults.append(f"world_id {bundle.world_id[:12]} is not the version {subject.world.version[:12]} of the world at hand")
    for part in ("world_id", "verifier_id", "harness_id"):
        if not _DIGEST.fullmatch(str(getattr(bundle, part))):
            faults.append(f"{part} is {getattr(bundle, part)!r}; allowed: 64 hexadecimal digits")
    for number, messages in enumerate(draft.request["turns"]):
        said = [message for message in messages if message.get("role") == "user" and str(message.get("content") or "").strip()]
        if not said:
            faults.append(f"turn {number} has no user message with text")
    for key in ("proposer", "licence"):
        if not draft.provenance.get(key):
            faults.append(f"provenance.{key} is {draft.provenance.get(key)!r}; allowed: text")
    measured = {"turns": len(draft.request["turns"]), "parts": list(bundle.part_digests)}
    return [judged("static.manifest", faults, why="the manifest is incomplete", remedy="fill the part in", measured=measured)]
