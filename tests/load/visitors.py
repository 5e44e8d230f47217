"""A program that works as one user on several connections, and says what each request took; standard library only.

    visitors.py SOCKET UID DIRECTORY MODE CONNECTIONS COUNT

`submit` sends COUNT jobs in all and ends; `poll` asks for lists until its input ends; `work` does what a user does
(submit, list, show, ask why) until its input ends. It prints JSON: the seconds of each request, statuses, and the
numbers of submitted jobs.
"""

import asyncio
import json
import os
import sys
import threading
import time
import uuid
from collections import Counter
from typing import Any


class Visitor:
    """One user with a number of connections."""

    def __init__(self, path: str, directory: str) -> None:
        self.path, self.directory = path, directory
        self.ended = asyncio.Event()
        self.seconds: dict[str, list[float]] = {}
        self.statuses: Counter[str] = Counter()
        self.ids: list[int] = []

    async def ask(self, name: str, method: str, path: str, body: Any = None) -> Any:
        """Send one request over a connection of its own, as commands do."""
        began = time.monotonic()
        reader, writer = await asyncio.open_unix_connection(self.path, limit=2**26)
        try:
            content = b"" if body is None else json.dumps(body).encode()
            head = f"{method} /api/v1{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
            if method != "GET":
                head += f"Request-Id: {uuid.uuid4().hex}\r\n"
            writer.write(f"{head}\r\n".encode() + content)
            answer = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            status = int(answer.split()[1])
            text = await reader.readexactly(int(answer.partition("content-length: ")[2].split("\r\n")[0]))
        finally:
            writer.close()
        self.seconds.setdefault(name, []).append(time.monotonic() - began)
        self.statuses[f"{name} {status}"] += 1
        return json.loads(text) if status == 200 else None

    async def submit(self, walltime: str = "0:1:0") -> int | None:
        """Submit one short job."""
        job = {"command": "true", "resources": [f"/core=1,walltime={walltime}"], "directory": self.directory}
        answer = await self.ask("submit", "POST", "/jobs", {**job, "stdout": "/dev/null", "stderr": "/dev/null"})
        if answer is None:
            return None
        self.ids.extend(answer["job_ids"])
        return int(answer["job_ids"][0])


async def submit(visitor: Visitor, connections: int, count: int) -> None:
    """Send so many jobs, shared among the connections."""

    async def share(number: int) -> None:
        for _ in range(count // connections + (number < count % connections)):
            await visitor.submit()

    await asyncio.gather(*(share(number) for number in range(connections)))


async def poll(visitor: Visitor, connections: int, _: int) -> None:
    """Ask for one's own jobs once a second on each connection, as a script in a loop does."""

    async def one(number: int) -> None:
        await asyncio.sleep(number / connections)
        while not visitor.ended.is_set():
            await visitor.ask("poll", "GET", "/jobs?user=" + user_name())
            await asyncio.sleep(1)

    await _until_the_end(visitor, [one(number) for number in range(connections)])


async def work(visitor: Visitor, connections: int, _: int) -> None:
    """Do what a user does, with a short pause between the rounds."""

    async def one() -> None:
        while not visitor.ended.is_set():
            job_id = await visitor.submit()
            await visitor.ask("list", "GET", "/jobs?user=" + user_name())
            if job_id is not None:
                await visitor.ask("show", "GET", f"/jobs/{job_id}")
                await visitor.ask("why", "GET", f"/jobs/{job_id}/why")
            await asyncio.sleep(0.05)

    await _until_the_end(visitor, [one() for _ in range(connections)])


async def _until_the_end(visitor: Visitor, works: list[Any]) -> None:
    tasks = [asyncio.create_task(work) for work in works]
    await visitor.ended.wait()
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            visitor.statuses[type(ended).__name__] += 1


def user_name() -> str:
    """Return the name of the user that this process became."""
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


async def main(path: str, directory: str, mode: str, connections: int, count: int) -> None:
    """Work in one mode, then print what was seen."""
    visitor = Visitor(path, directory)
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(visitor.ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await {"submit": submit, "poll": poll, "work": work}[mode](visitor, connections, count)
    print(json.dumps({"statuses": visitor.statuses, "seconds": visitor.seconds, "ids": visitor.ids}))


if __name__ == "__main__":
    _path, _uid, _directory, _mode, _connections, _count = sys.argv[1:]
    os.setgroups([])
    os.setresgid(*[int(_uid)] * 3)
    os.setresuid(*[int(_uid)] * 3)
    asyncio.run(main(_path, _directory, _mode, int(_connections), int(_count)))
