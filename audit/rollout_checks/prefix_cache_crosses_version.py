"""A prompt's cached prefix was computed by the weights that answer it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from audit.rollout_checks import CheckResult, RolloutSubject, answers
from audit.rollout_checks._calls import with_tokens
from audit.rollout_checks._faults import Fault, found, skipped


@answers("prefix_cache_crosses_version")
def prefix_cache_crosses_version(subject: RolloutSubject, policy: Mapping[str, Any]) -> Sequence[CheckResult]:
    """Whether no call with cached tokens has a cache salt of another version, and none without a salt found what another version sampled.

    A rollout shows the latter where its weights changed on the way: what it had sampled so far was in the cache of the old ones alone, so
    a call of the new ones that finds more than the first prompt there took it over. A salt that names a version of the policy must name
    this one.

    Source: case E3.
    """
    faults, looked = [], 0
    first: dict[str, int] = {}
    before: dict[str, tuple[str, str | None]] = {}
    for call, answered, tokens in with_tokens(subject):
        if not answered.version_spans or tokens.prompt is None:
            continue
        version, cached = answered.version_spans[0].model_version, answered.usage.get("cached_tokens")
        opening = first.setdefault(answered.participant, len(tokens.prompt))
        old, old_id = before.get(answered.participant, (None, None))
        before[answered.participant] = (version, call.answered_id)
        if cached is None:
            continue
        looked += 1
        # A salt matters at the first call and where the weights change; requests are long, so the others are not read.
        if not cached or old == version:
            continue
        salt = _salt(subject.request(call).get("cache_salt"), version)
        seen = {"call": answered.index, "cached_tokens": cached, "version": version, "salt": salt}
        if salt is not None and version not in salt:
            faults.append(Fault(seen, (call.answered_id,)))
        elif salt is None and old is not None and cached > opening:
            faults.append(Fault({**seen, "version_before": old, "first_prompt": opening}, (old_id, call.answered_id)))
    if not looked:
        return skipped("prefix_cache_crosses_version", "no answer says how much of its prompt was cached")
    return [
        found(
            "prefix_cache_crosses_version", faults, why="a cached prefix was computed by other weights", kind="stale_cache",
            remedy="reset the prefix cache with the weights, or salt it with the version", measured={"calls": looked},
        )
    ]  # fmt: skip


def _salt(value: Any, version: str) -> str | None:
    """A salt that names a version of the same policy; any other says nothing of weights."""
    return value if isinstance(value, str) and version.rpartition("-")[0] in value else None
