"""The notifications of a server to systemd (`Type=notify`): that it is ready, that it is alive, that it stops."""

import asyncio
import contextlib
import os
import socket
from collections.abc import MutableMapping
from typing import Self


class ServiceManager:
    """The socket of the manager that started this server; without one nothing is sent."""

    def __init__(self, address: str, watchdog_seconds: float) -> None:
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._period = watchdog_seconds / 2  # as sd_watchdog_enabled(3) recommends

    @classmethod
    def of_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Self:
        """Read and remove the variables: they are not meant for jobs and programs of the site."""
        address, microseconds = environment.pop("NOTIFY_SOCKET", ""), environment.pop("WATCHDOG_USEC", "")
        meant = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        return cls(address, int(microseconds) / 1e6 if meant and microseconds.isdecimal() else 0)

    def send(self, *lines: str) -> None:
        """Send assignments such as `READY=1`. A manager that is away or busy is no reason to stop."""
        if not self._address:
            return
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), self._address)

    def serving(self) -> None:
        """Report that requests are accepted."""
        self.send("READY=1", "STATUS=serving")

    def standing_by(self) -> None:
        """Report that a standby server waits for its turn, which may take months, and is alive."""
        self.send("READY=1", "STATUS=standing by", "WATCHDOG=1")

    def stopping(self) -> None:
        """Report that the server ends."""
        self.send("STOPPING=1")

    async def beat(self) -> None:
        """Report again and again that the event loop runs, until cancelled."""
        while self._address and self._period:
            self.send("WATCHDOG=1")
            await asyncio.sleep(self._period)
