"""Virtual nodes of another cluster that post their samples to a real server, as `oarlock agent --send` does."""

import asyncio
import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from bench.collect_load import VirtualNode
from oarlock.measure.posting.envelope import MEDIA_TYPE, AgentNotice, NotedJob, encode_notice, pack

CLUSTER = "elsewhere"
CONNECTIONS = 16
AGAIN_SECONDS = 1.0


@dataclass
class VirtualAgent:
    """A virtual node, its token, and when each of its jobs was in its samples (milliseconds).

    As an agent does, it sends a sample when the one before was taken: on a busy machine they would overtake each other.
    """

    node: VirtualNode
    token: str
    sending: asyncio.Lock = field(default_factory=asyncio.Lock)
    spans: dict[int, list[int]] = field(default_factory=dict)
    described: frozenset[int] | None = None

    def body(self, at: float) -> bytes:
        """Take a sample; what the server does not know yet goes before it."""
        frame = self.node.frame(at)
        for job in self.node.jobs:
            self.spans.setdefault(job, []).append(self.node.sent[-1])
        jobs = frozenset(self.node.jobs)
        if jobs == self.described:
            return pack([frame])
        notice = AgentNotice(
            fresh=self.described is None,
            period=10.0,
            jobs=[NotedJob(job, str(job), "slurm", "ada", 1000, "physics") for job in sorted(jobs)],
        )
        self.described = jobs
        return pack([encode_notice(notice), frame])


class AgentFleet:
    """Agents that share some connections, as those behind a proxy do. Only what was answered with 200 counts."""

    def __init__(self, address: tuple[str, int], agents: Sequence[VirtualAgent]) -> None:
        self.agents = agents
        self.again = 0
        """Requests that the server wanted to have again, since the collector was behind."""
        self._address = address
        self._free: asyncio.Queue[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = asyncio.Queue()

    async def open(self) -> None:
        for _ in range(CONNECTIONS):
            self._free.put_nowait(await asyncio.open_connection(*self._address))

    async def close(self) -> None:
        while not self._free.empty():
            _, writer = self._free.get_nowait()
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def post(self, agent: VirtualAgent) -> None:
        """Send a sample of a node, until it is taken."""
        async with agent.sending:
            body = agent.body(time.time())
            while True:
                status, text = await self._request(agent, body)
                if status == 200:
                    assert json.loads(text)["taken"] == 1, text
                    return
                assert status == 429, (status, text)
                self.again += 1
                await asyncio.sleep(AGAIN_SECONDS)

    async def _request(self, agent: VirtualAgent, body: bytes) -> tuple[int, bytes]:
        reader, writer = await self._free.get()
        try:
            host, port = self._address
            writer.write(
                f"POST /api/v1/samples?node={quote(agent.node.name)} HTTP/1.1\r\nHost: {host}:{port}\r\n"
                f"Authorization: Bearer {agent.token}\r\nContent-Type: {MEDIA_TYPE}\r\n"
                f"Content-Length: {len(body)}\r\n\r\n".encode()
                + body
            )
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length:")[2].split()[0])
            return int(head.split()[1]), await reader.readexactly(length)
        finally:
            self._free.put_nowait((reader, writer))
