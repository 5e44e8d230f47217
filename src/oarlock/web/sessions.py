"""What the API needs to hand a connection over to a session."""

import asyncio
from typing import Protocol


class SessionConnection(Protocol):
    """Frames to and from the client of a session. `is_local`: the kernel closes it when the client's process ends."""

    is_local: bool
    lost: asyncio.Event

    async def receive(self) -> bytes | None: ...
    def send(self, payload: bytes) -> None: ...
    async def close(self) -> None: ...


class Upgradable(Protocol):
    """An HTTP connection that can become one of frames."""

    def upgrade(self) -> SessionConnection:
        """Answer 101; nothing of HTTP follows."""
        ...
