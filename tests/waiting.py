"""Waiting for what another process or thread has to do."""

import asyncio
import time
from collections.abc import Callable
from typing import Any


def wait_until(done: Callable[[], Any], what: str = "it", seconds: float = 20.0) -> Any:
    """Ask until the answer is true, and return it; fail when time is over.

    What lasts long is asked for less often: other tests need the machine.
    """
    begin = time.monotonic()
    while not (answer := done()):
        waited = time.monotonic() - begin
        assert waited < seconds, f"{what} did not happen within {seconds} s"
        time.sleep(min(0.005 + waited / 20, 0.1))
    return answer


async def until(done: Callable[[], Any], what: str = "it", seconds: float = 30.0) -> Any:
    """Do the same in an event loop, which goes on meanwhile."""
    end = time.monotonic() + seconds
    while not (answer := done()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        await asyncio.sleep(0.01)
    return answer
