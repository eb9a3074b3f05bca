"""A scripted OpenAI-compatible server for tests that are not asynchronous themselves."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

from training.rollout.scripted import ScriptedServer


@contextmanager
def scripted_server(*, keep: int = 20) -> Iterator[ScriptedServer]:
    """A server on an event loop of its own thread; requests without a rollout get the script of None."""
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = ScriptedServer(keep=keep)
    asyncio.run_coroutine_threadsafe(server.__aenter__(), loop).result()
    try:
        yield server
    finally:
        asyncio.run_coroutine_threadsafe(server.__aexit__(None, None, None), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
