"""Whose fault a failure is: five boundaries, and under each the kinds of fault that audits name. Pure."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import get_args

from ledger.errors import UnknownFault
from ledger.events import Boundary

BOUNDARIES: tuple[Boundary, ...] = get_args(Boundary)

FAULTS: Mapping[str, Boundary] = MappingProxyType({
    # The world, its user and what runs them.
    "world_crashed": "environment", "reset_failed": "environment", "wrong_reset": "environment", "seed_ignored": "environment",
    "tool_timeout": "environment", "permission_denied": "environment", "malformed_result": "environment",
    "truncated_result": "environment", "connection_dropped": "environment", "call_executed_twice": "environment",
    "stale_answer": "environment", "state_corrupted": "environment", "read_changed_state": "environment",
    "nondeterministic": "environment", "shared_state": "environment", "simulated_user_fault": "environment",
    "resources_exhausted": "environment",
    # What carries the conversation: harness, parser, gateway, engine.
    "harness_crashed": "harness", "call_dropped_by_parser": "harness", "arguments_changed": "harness", "history_cut": "harness",
    "template_drift": "harness", "length_stop_as_failure": "harness", "hidden_retry": "harness", "late_attempt": "harness",
    "acted_after_finish": "harness", "capture_gap": "harness", "tokens_changed": "harness", "engine_failed": "harness",
    "no_model_call": "harness", "time_misreported": "harness", "credentials_missing": "harness", "seed_shared": "harness",
    "ids_not_unique": "harness",
    # What judges.
    "verifier_crashed": "verifier", "verifier_timeout": "verifier", "verdict_missing": "verifier", "false_accept": "verifier",
    "false_reject": "verifier", "verifier_nondeterministic": "verifier", "judge_unstable": "verifier",
    "reward_without_verdict": "verifier", "reward_out_of_range": "verifier", "reward_before_verification": "verifier",
    "verdict_incomplete": "verifier",
    # The policy, by its own doing.
    "wrong_end_state": "task", "side_effect": "task", "unfinished": "task", "limit_reached": "task", "no_action": "task",
    "reward_hacking": "task",
    # What makes updates of rollouts.
    "stale_weights": "training", "stale_cache": "training", "masked_row_votes": "training", "swapped_rewards": "training",
    "reward_coerced": "training", "logprobs_filled": "training", "inverted_mask": "training", "slice_double_counted": "training",
    "wrong_population": "training", "wrong_denominator": "training", "token_trained_twice": "training", "wrong_advantage": "training",
    "wrong_weight": "training", "dispatched_not_consumed": "training", "length_biased": "training", "harness_differs": "training",
    "logprobs_mismatched": "training", "version_unstated": "training",
    "failed_attempt_trained": "training", "masks_differ": "training", "truncated_sampling_recorded_raw": "training",
})  # fmt: skip
"""Kind of fault to the boundary at which it happens."""

CAUSAL = frozenset({
    "tool_timeout", "permission_denied", "malformed_result", "truncated_result", "connection_dropped", "call_executed_twice",
    "stale_answer", "state_corrupted", "read_changed_state", "shared_state", "simulated_user_fault", "resources_exhausted", "wrong_reset",
    "seed_ignored", "world_crashed", "reset_failed", "harness_crashed", "call_dropped_by_parser", "arguments_changed", "history_cut",
    "template_drift", "length_stop_as_failure", "engine_failed", "no_model_call", "credentials_missing", "tokens_changed",
})  # fmt: skip
"""Faults of environment and harness that can make a rollout fail; the others of theirs spoil what is known of it, not what it did."""
TIES: tuple[Boundary, ...] = ("environment", "harness", "verifier", "task")
"""The order in which a tie between causes is decided."""


def boundary_of(fault: str) -> Boundary:
    """The boundary of a kind of fault.

    Raises:
        UnknownFault: there is no such kind.
    """
    if fault not in FAULTS:
        raise UnknownFault(f"fault {fault!r}; allowed: {', '.join(sorted(FAULTS))}")
    return FAULTS[fault]
