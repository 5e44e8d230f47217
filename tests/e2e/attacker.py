"""A program that asks a server for too much, or that measures how others fare meanwhile; standard library only.

    attacker.py SOCKET PORT_ADDRESS UID DIRECTORY MODE

It becomes the user, works until its input ends, and prints what it saw as JSON.
"""

import asyncio
import contextlib
import json
import os
import random
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

Answer = tuple[int, bytes]


class Caller:
    """Asks over the socket, with a connection a request as commands do, or with one for many."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def once(
        self, method: str, path: str, body: Any = None, request_id: str = "", prefix: str = "/api/v1"
    ) -> Answer:
        answer = await self.again(method, path, body, request_id, prefix)
        self.close()
        return answer

    async def again(
        self, method: str, path: str, body: Any = None, request_id: str = "", prefix: str = "/api/v1"
    ) -> Answer:
        if self._streams is None:
            self._streams = await asyncio.open_unix_connection(self._path)
        reader, writer = self._streams
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {prefix}{path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n"
        if method != "GET":
            head += f"Request-Id: {request_id or uuid.uuid4().hex}\r\n"
        writer.write(f"{head}\r\n".encode() + content)
        status = int((await reader.readline()).split()[1])
        length = 0
        while (line := await reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            length = int(value) if name.lower() == "content-length" else length
        return status, await reader.readexactly(length)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


class Program:
    """What one mode needs: where the server is, when to end, and what was seen."""

    def __init__(self, path: str, address: str, directory: str) -> None:
        self.path, self.address, self.directory = path, address, directory
        self.ended = asyncio.Event()
        self.statuses: Counter[str] = Counter()
        self.seconds: list[tuple[str, float]] = []
        self.faults: list[str] = []
        self.seed = int(os.environ.get("ATTACK_SEED") or time.time_ns())

    def job(self, **more: Any) -> dict[str, Any]:
        return {"command": "true", "resources": ["/core=1,walltime=0:1:0"], "directory": self.directory, **more}

    async def many(self, count: int, work: Callable[[Caller, int], Awaitable[Answer]]) -> None:
        """Do the same on so many connections, again and again."""

        async def one(number: int) -> None:
            caller = Caller(self.path)
            while not self.ended.is_set():
                try:
                    status, _ = await work(caller, number)
                    self.statuses[str(status)] += 1
                except (OSError, EOFError, IndexError) as problem:
                    self.statuses[type(problem).__name__] += 1
                    caller.close()
                    await asyncio.sleep(0.05)
                number += 1

        await self.side_by_side([one(number) for number in range(count)])

    async def side_by_side(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Work on all of these until the input ends."""
        tasks = [asyncio.create_task(work) for work in works]
        await self.ended.wait()
        for task in tasks:
            task.cancel()


async def reservations(program: Program) -> None:
    """Send one request for a reservation that is held, on 100 connections."""
    body = program.job(reservation=int(time.time()) + 3600, hold=True)
    await program.many(100, lambda caller, _: caller.again("POST", "/jobs", body, "the same"))


async def arrays(program: Program) -> None:
    """Submit arrays of which each member would repeat 349 KB of text, and list all of one's own in full."""
    large = program.job(
        command="true " + "x" * 60_000,
        environment={"LARGE": "x" * 125_000},
        initial_request="x" * 60_000,
        array=[f"{n:020}" for n in range(4100)],
        hold=True,
    )

    async def work(caller: Caller, number: int) -> Answer:
        if number % 5 == 0:
            return await caller.again("POST", "/jobs", large)
        return await caller.again("GET", "/jobs?full=1&user=" + str(_name()))

    await program.many(5, work)


async def alternatives(program: Program) -> None:
    """Submit arrays of jobs with very many alternatives and groups; the last of them is not refused."""
    sizes = ((250, 1000), (250, 100), (4, 1000))
    bodies = [
        program.job(
            resources=["+".join(["/core=1"] * groups) + ",walltime=0:1:0"] * 64,
            array=[str(n) for n in range(members)],
            hold=True,
        )
        for groups, members in sizes
    ]
    await program.many(4, lambda caller, number: caller.again("POST", "/jobs", bodies[number % len(bodies)]))


async def readers(program: Program) -> None:
    """List, ask conditions and try submissions on 100 connections."""
    ways = [
        ("GET", "/jobs", None),
        ("GET", "/jobs?where=" + "project%20%3D%20%27default%27%20AND%20job_name%20LIKE%20%27%25a%25b%25%27", None),
        ("POST", "/jobs/dry-run", program.job()),
        ("GET", f"/jobs?full=1&user={_name()}&states=Running", None),
    ]
    await program.many(100, lambda caller, number: caller.again(*ways[number % len(ways)]))


async def connections(program: Program) -> None:
    """Hold 1,400 connections from as many addresses of this machine; open those that were closed again."""
    host, _, port = program.address.rpartition(":")

    async def hold(number: int) -> None:
        here = f"127.1.{number // 250}.{1 + number % 250}"
        while not program.ended.is_set():
            try:
                reader, writer = await asyncio.open_connection(host, int(port), local_addr=(here, 0))
                program.statuses["429" if b" 429 " in await reader.readline() else "closed"] += 1
                writer.close()
            except OSError as problem:
                program.statuses[type(problem).__name__] += 1
            await asyncio.sleep(0.05)

    await program.side_by_side([hold(number) for number in range(1400)])


async def heads(program: Program) -> None:
    """Send what is no request, half of one, or has an odd head, on 50 connections of the socket and of the port."""
    host, _, port = program.address.rpartition(":")
    chance = random.Random(program.seed)
    good = b"GET /api/v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    odd = [
        b"\x16\x03\x01" + bytes(300),
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/jobs HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 50\r\n\r\n{}",
        b"POST /api/v1/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\nffffffff\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        b"GET /%00%ff/../../etc/passwd HTTP/1.1\r\nHost: \xff\r\n\r\n",
    ]

    async def throw(number: int) -> None:
        while not program.ended.is_set():
            text = bytearray(chance.choice([*odd, good]))
            for _ in range(chance.randrange(4)):
                text[chance.randrange(len(text))] = chance.randrange(256)
            try:
                where = (
                    asyncio.open_unix_connection(program.path)
                    if number % 2
                    else asyncio.open_connection(host, int(port))
                )
                reader, writer = await where
                writer.write(bytes(text))
                with contextlib.suppress(asyncio.TimeoutError):
                    first = await asyncio.wait_for(reader.readline(), 0.2)
                    program.statuses[first[9:12].decode("ascii", "replace") or "closed"] += 1
                writer.close()
            except (OSError, ValueError) as problem:
                program.statuses[type(problem).__name__] += 1

    await program.side_by_side([throw(number) for number in range(50)])


async def generated(program: Program) -> None:
    """Send requests to every verb that the server describes, with fields of the right names and of any kind."""
    _, text = await Caller(program.path).once("GET", "/openapi.json", prefix="/api")
    described = json.loads(text)
    verbs = [
        (method.upper(), path, sorted(_fields(described, verb)))
        for path, verbs in described["paths"].items()
        for method, verb in verbs.items()
        if "/live" not in path
    ]
    chance = random.Random(program.seed)

    async def work(caller: Caller, _: int) -> Answer:
        method, path, fields = chance.choice(verbs)
        for place in ("{id}", "{name}", "{node}"):
            path = path.replace(place, quote(str(_odd(chance)), safe=""))
        chosen = {name: _odd(chance) for name in fields if name not in COMMANDS and chance.random() < 0.5}
        if "command" in fields:
            chosen["command"] = "true"
        path = path.removeprefix("/api/v1")
        if method == "GET":
            path += "?" + "&".join(f"{name}={quote(str(value))}" for name, value in chosen.items())
            return await caller.again(method, path)
        status, content = await caller.again(method, path, chosen)
        if status >= 500:
            program.faults.append(f"{method} {path} {chosen} {content[:300]!r}")
        return status, content

    await program.many(20, work)


def _fields(described: Any, verb: Any) -> set[str]:
    """Return the names of the fields that a verb takes, in its address and in its body."""
    names = {one["name"] for one in verb.get("parameters", ()) if one.get("in") == "query"}
    for content in verb.get("requestBody", {}).get("content", {}).values():
        schema = content.get("schema", {})
        if "$ref" in schema:
            schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
        names |= set(schema.get("properties", ()))
    return names


INJECTIONS = (
    "'; DROP TABLE jobs; --",
    '" OR 1=1 --',
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned #",
    "a\nERROR forged line",
    "\x1b[2J\x1b]0;title\x07",
    "<script>alert(1)</script>",
    "{{7*7}}{% raw %}",
    "%s%n%x",
    "../../../../etc/passwd",
    "\u202egnp.exe",
    "\x00end",
    "A" * 5000,
    "=cmd|' /C calc'!A0",
)


COMMANDS = frozenset({"command", "script", "array"})
"""Fields whose text is run by a shell, as its owner: that is what they are for."""


def _odd(chance: random.Random) -> Any:
    """Draw a value that somebody might send who means no good."""
    return chance.choice(
        [
            1,
            0,
            -1,
            2**31,
            2**63,
            2**70,
            1.5,
            "",
            "1",
            None,
            True,
            [],
            {},
            [1] * 50,
            ["x"],
            {"a": {"b": []}},
            *INJECTIONS,
        ]
    )


async def swaps(program: Program) -> None:
    """Submit jobs whose output lies in a directory that is swapped with a link to root's, all the time."""
    trap, real, link = (Path(program.directory, name) for name in ("trap", "trap.real", "trap.link"))
    real.mkdir(exist_ok=True)
    with contextlib.suppress(FileExistsError):
        link.symlink_to(Path(program.directory).parent / "secret")
    link.rename(trap)
    turns = 0

    def swap() -> None:
        nonlocal turns
        while not program.ended.is_set():
            trap.rename(link)
            real.rename(trap)
            trap.rename(real)
            link.rename(trap)
            turns += 1

    thread = threading.Thread(target=swap)
    thread.start()
    body = program.job(directory=str(trap), stdout="out", stderr=str(trap / "err"))
    body["array"] = [str(n) for n in range(20)]
    while not program.ended.is_set():
        status, _ = await Caller(program.path).once("POST", "/jobs", body)
        program.statuses[str(status)] += 1
        await asyncio.sleep(1)
    thread.join()
    program.statuses["turns"] = turns


async def commands(program: Program) -> None:
    """Do what a user does, and measure how long each takes."""
    caller, job_id = Caller(program.path), 1
    while not program.ended.is_set():
        for name, request in (
            ("submit", ("POST", "/jobs", program.job())),
            ("list", ("GET", f"/jobs?user={_name()}")),
            ("show", ("GET", f"/jobs/{job_id}")),
            ("delete", ("POST", "/jobs/delete", {"ids": [job_id]})),
        ):
            began = time.monotonic()
            status, content = await caller.once(*request)
            program.seconds.append((name, time.monotonic() - began))
            program.statuses[f"{name} {status}"] += 1
            if name == "submit" and status == 200:
                job_id = json.loads(content)["job_ids"][0]
        await asyncio.sleep(0.05)


async def starts(program: Program) -> None:
    """Submit one short job after the other, and measure how long each waits for its start."""
    caller = Caller(program.path)
    while not program.ended.is_set():
        status, content = await caller.once("POST", "/jobs", program.job())
        program.statuses[f"submit {status}"] += 1
        job_id, began = json.loads(content)["job_ids"][0], time.monotonic()
        while not program.ended.is_set():
            _, content = await caller.once("GET", f"/jobs/{job_id}")
            if json.loads(content)["state"] != "Waiting":
                break
            await asyncio.sleep(0.05)
        program.seconds.append(("start", time.monotonic() - began))  # one that never started counts, too


def _name() -> str:
    import pwd

    return pwd.getpwuid(os.geteuid()).pw_name


_ATTACKS = (reservations, arrays, alternatives, readers, connections, heads, generated, swaps)
MODES = {mode.__name__: mode for mode in (*_ATTACKS, commands, starts)}


async def main(path: str, address: str, directory: str, mode: str) -> None:
    program = Program(path, address, directory)
    loop = asyncio.get_running_loop()

    def wait() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(program.ended.set)

    threading.Thread(target=wait, daemon=True).start()
    await MODES[mode](program)
    print(json.dumps({"statuses": program.statuses, "seconds": program.seconds, "faults": program.faults}))


if __name__ == "__main__":
    _path, _address, _uid, _directory, _mode = sys.argv[1:]
    os.setgroups([])
    os.setresgid(*[int(_uid)] * 3)
    os.setresuid(*[int(_uid)] * 3)
    asyncio.run(main(_path, _address, _directory, _mode))
