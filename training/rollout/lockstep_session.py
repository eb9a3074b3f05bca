"""Requests that stay in this process, for a client that would post them to a gateway."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from training.rollout.lockstep_gateway import LockstepGateway


@dataclass(frozen=True)
class _Response:
    """As much of an HTTP response as a client of whole answers reads."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    async def read(self) -> bytes:
        """The body."""
        return self.body


class LockstepSession:
    """Posts to a `LockstepGateway`; what `training.rollout.model_client` needs of a session."""

    def __init__(self, gateway: LockstepGateway) -> None:
        self._gateway = gateway

    @asynccontextmanager
    async def post(self, url: str, *, data: bytes, headers: Mapping[str, str]) -> AsyncIterator[_Response]:
        """The response to a chat completion at a URL from `LockstepGateway.base_url`."""
        rollout_id = url.partition("/r/")[2].removesuffix("/v1/chat/completions")
        answer = await self._gateway.chat(rollout_id, data, headers)
        yield _Response(answer.status, answer.headers, answer.body)
