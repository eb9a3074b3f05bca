"""The ways by which a rollout's participants reach the model through the gateway. Talks HTTP, writes the ledger."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import aiohttp

from ledger.events.model_call import CallRole
from training.hooks import Rewrite
from training.rollout.episode import Answer, Ask, Message, Tools
from training.rollout.gateway import Gateway
from training.rollout.model_client import ModelClient
from training.rollout.policies import Policy
from training.rollout.recording import RolloutRecord, participant_name


class Ways:
    """A rollout's ways to its model, one a role; what is due before a call is recorded before the call is made."""

    def __init__(
        self,
        gateway: Gateway,
        session: aiohttp.ClientSession,
        record: RolloutRecord,
        policy: Policy,
        *,
        max_tokens: int,
        seed_parts: Sequence[str | int],
    ) -> None:
        self._gateway, self._session, self._record, self._policy = gateway, session, record, policy
        self._sampling = {"max_tokens": max_tokens, **policy.sampling}
        self._seed_parts = tuple(seed_parts)

    def asker(self, role: CallRole) -> Ask:
        """The way for the policy's participant in a role; sub-agents and summaries are marked as such."""
        gateway, record, policy = self._gateway, self._record, self._policy
        headers: Mapping[str, str] = (
            {} if role == "agent" else {"X-Tally-Role": role, "X-Tally-Participant": participant_name(policy.name, role)}
        )
        client = ModelClient(
            self._session, gateway.base_url(record.rollout_id), policy.model, sampling=self._sampling, stream=policy.stream,
            strict_tools=policy.strict_tools, seed_parts=self._seed_parts, headers=headers,
        )  # fmt: skip

        async def ask(messages: Sequence[Message], tools: Tools, index: int) -> Answer:
            await record.flush(index)
            before = gateway.calls(record.rollout_id).sampling_s
            answer = await client.ask(messages, tools, index)
            return replace(answer, sampling_s=gateway.calls(record.rollout_id).sampling_s - before)

        return ask

    def rewrote(self, rewrite: Rewrite, role: CallRole, index: int) -> None:
        """Note what was rewritten before model call `index`."""
        self._record.rewrote(rewrite, None if role == "agent" else participant_name(self._policy.name, role), index)
