"""What other systems call a failure, as our boundaries and faults: read when their records are imported. Pure.

Source: the names and what they mean are those of formats.md section 0.8: Harbor 0.26 `models/trial/error_policy.py` (a row is should_retry,
should_grade, has_valid_reward by exception type), verifiers v1 `errors.py` and its stop conditions, SWE-bench 5 `harness/infra_failure.py`,
tau2 1.0.1 `TerminationReason`, Inspect AI 0.3 `limit.type`, agent-lightning 0.3 `AttemptStatus`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from audit.taxonomy import boundary_of
from ledger.events import Boundary

Sure = Literal["certain", "likely", "unknown"]


@dataclass(frozen=True)
class ForeignFailure:
    """What a foreign name means here.

    Attributes:
        boundary: whose fault it is; `none` for an end that is no failure, `unknown` where the name does not say.
        fault: kind of fault, from `audit.taxonomy`; None without one.
        sure: how sure the name alone makes it.
        valid_reward: whether a reward beside it may be evidence about the policy; None where the name does not say.
    """

    boundary: Boundary | Literal["none", "unknown"]
    fault: str | None = None
    sure: Sure = "certain"
    valid_reward: bool | None = False


def _is(fault: str, sure: Sure = "certain", *, valid: bool | None = False) -> ForeignFailure:
    return ForeignFailure(boundary_of(fault), fault, sure, valid)


UNKNOWN = ForeignFailure("unknown", None, "unknown", None)
_FINE = ForeignFailure("none", None, "certain", True)
_UNSURE = ForeignFailure("unknown", None, "unknown", None)

_HARBOR = {
    "EnvironmentStartTimeoutError": _is("reset_failed"), "SandboxBuildFailedError": _is("reset_failed"),
    "HealthcheckError": _is("reset_failed"), "AgentSetupTimeoutError": _is("harness_crashed"),
    "SandboxLikelyOutOfMemoryError": _is("resources_exhausted", "likely"), "AddTestsDirError": _is("verifier_crashed"),
    "DownloadVerifierDirError": _is("verifier_crashed"), "VerifierTimeoutError": _is("verifier_timeout"),
    "RewardFileNotFoundError": _is("verdict_missing"), "RewardFileEmptyError": _is("verdict_missing"),
    "VerifierOutputParseError": _is("verifier_crashed"), "RateLimitError": _is("engine_failed"), "Timeout": _is("engine_failed"),
    "BadRequestError": _is("engine_failed", "likely"), "AgentAuthenticationError": _is("credentials_missing"),
    "ModelNotFoundError": _is("credentials_missing", "likely"), "CancelledError": ForeignFailure("none", None, "certain", False),
    "NonZeroAgentExitCodeError": _is("unfinished", "likely", valid=True), "AgentTimeoutError": _is("limit_reached", valid=True),
    "ContextWindowExceededError": _is("limit_reached", valid=True), "OutputTokenExceededError": _is("limit_reached", valid=True),
    "AgentSafetyRefusalError": _is("no_action", "likely", valid=True),
    "ContentPolicyViolationError": _is("no_action", "likely", valid=True),
}  # fmt: skip
_VERIFIERS = {
    "ProviderError": _is("engine_failed"), "HarnessError": _is("harness_crashed"), "ToolsetError": _is("world_crashed"),
    "EnvError": _is("world_crashed"), "SandboxError": _is("world_crashed"), "TaskError": _is("verifier_crashed", "likely"),
    "InterceptionError": _is("capture_gap"), "TunnelError": _is("capture_gap"), "provider_error": _is("engine_failed"),
    "harness_error": _is("harness_crashed"), "toolset_error": _is("world_crashed"), "env_error": _is("world_crashed"),
    "sandbox_error": _is("world_crashed"), "task_error": _is("verifier_crashed", "likely"),
    "setup_timeout": _is("reset_failed", "likely"), "scoring_timeout": _is("verifier_timeout"), "has_error": _UNSURE,
    "agent_completed": ForeignFailure("none", None, "unknown", None), "max_turns_reached": _is("limit_reached", valid=True),
    "prompt_too_long": _is("limit_reached", valid=True), "generation_timeout": _is("limit_reached", "likely", valid=None),
}  # fmt: skip
_SWEBENCH = {
    "browser_launch_failed": _is("world_crashed", "likely"), "display_unavailable": _is("world_crashed", "likely"),
    "out_of_memory": _is("resources_exhausted", "likely"), "container_unavailable": _is("world_crashed", "likely"),
    "network_unreachable": _is("connection_dropped", "likely"), "missing_module": _UNSURE, "no_tests_collected": _UNSURE,
    "tests_timed_out": _UNSURE,
}  # fmt: skip
_TAU2 = {
    "user_stop": _FINE, "agent_stop": _FINE, "max_steps": _is("limit_reached", valid=True),
    "timeout": _is("limit_reached", "likely", valid=None),
    "too_many_errors": _is("unfinished", "likely", valid=None), "agent_error": _is("unfinished", "likely", valid=None),
    "user_error": _is("simulated_user_fault"), "infrastructure_error": _is("engine_failed", "likely"),
    "context_window_exceeded": _is("limit_reached", valid=True), "unexpected_error": _UNSURE,
}  # fmt: skip
_INSPECT = {
    **{name: _is("limit_reached", valid=True) for name in ("context", "message", "token", "turn", "cost")},
    "time": _is("limit_reached", "likely", valid=None), "working": _is("limit_reached", valid=True),
    "operator": ForeignFailure("none", None, "certain", False), "custom": _UNSURE,
}  # fmt: skip
_LIGHTNING = {
    "succeeded": _FINE, "failed": _UNSURE, "unresponsive": _is("harness_crashed", "likely"),
    "timeout": _is("limit_reached", "likely", valid=None),
    "cancelled": ForeignFailure("none", None, "certain", False),
}  # fmt: skip

SYSTEMS: Mapping[str, Mapping[str, ForeignFailure]] = MappingProxyType({
    "harbor": _HARBOR, "verifiers": _VERIFIERS, "swebench": _SWEBENCH, "tau2": _TAU2, "inspect": _INSPECT, "agent_lightning": _LIGHTNING,
})  # fmt: skip
"""System to its names. Harbor takes the reward beside a name that it does not know for valid; here it is unknown."""


def meaning_of(system: str, name: str) -> ForeignFailure:
    """What a system's name for a failure means here; `UNKNOWN` for one that is not in the table. Harbor's API errors go by their prefix."""
    known = SYSTEMS.get(system, {})
    if name in known:
        return known[name]
    return _is("engine_failed") if system == "harbor" and name.startswith("Api") and name.endswith("Error") else UNKNOWN


def meanings(system: str, names: Iterable[str]) -> tuple[tuple[ForeignFailure, ...], dict[str, int]]:
    """What each name means, and how often names that nobody knows were met, by name."""
    found, strange = [], Counter[str]()
    for name in names:
        meaning = meaning_of(system, name)
        found.append(meaning)
        if meaning is UNKNOWN:
            strange[name] += 1
    return tuple(found), dict(sorted(strange.items()))
