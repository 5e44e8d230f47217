"""What a desktop says is not believed unseen: it belongs to somebody, and the rest of the site is not theirs."""

import asyncio
import json
import math
from collections.abc import Callable
from typing import Any

import pytest

from oarlock.config import Config
from oarlock.job.run.reports import AttemptMissing, BadReport, ConnectionLost, Exited, NodeReachable, Started
from oarlock.model.errors import DesktopConnected, NodeRefused, NodeUnreachable
from oarlock.node.program import loader
from oarlock.node.wire.channel import ANSWER, EVENT, PROTOCOL, REQUEST, FrameReader, encode_frame
from oarlock.node.wire.messages import EXITED, FAILED, Launch, NodeSettings, Report, fingerprint, sign_report
from oarlock.server.nodes import ConnectionSlots, Timeouts
from oarlock.server.nodes.channel import node_fingerprint
from oarlock.server.nodes.desktop import DesktopClient
from oarlock.server.nodes.fleet import Fleet, InstanceIdentity
from tests.bed import run_async
from tests.waiting import wait_until

SECRET = "ab" * 32
HELLO = {
    "event": "hello", "protocol": PROTOCOL, "node": "desk", "boot": "b1", "cgroups": "processes", "missing": [],
    "cpus": 2, "processes": 100, "memory": 1 << 30, "python": "3.11", "uid": 1000, "now": 1.0,
    "unusable": {"/prologue": "missing"}, "instance": "ours", "highest_job": 2**40,
}  # fmt: skip


class PretendedDesktop:
    """The other end of a desktop's connection, which says what a test wants."""

    way_to_update = "install the right one"

    def __init__(self, hello: Any = HELLO, attempts: list[Any] | None = None, program: str = "") -> None:
        self._hello, self._attempts = hello, attempts or []
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._reader: FrameReader | None = None
        self.answers: dict[str, dict[str, Any]] = {}
        self.is_silent = False
        self._out.put_nowait(loader.installed_marker() + (program or node_fingerprint()).encode() + b"\n")

    def write(self, data: bytes) -> None:
        if self._reader is None:
            self._reader = FrameReader()
            assert json.loads(data)["node"] == "desk"
            self.say(self._hello)
            return
        for frame in self._reader.feed(data):
            if frame.kind == REQUEST and not self.is_silent:
                verb = frame.body()["verb"]
                answer = {"attempts": self._attempts} if verb == "status" else self.answers.get(verb, {})
                self._out.put_nowait(encode_frame(ANSWER, frame.number, answer))

    def say(self, event: dict[str, Any]) -> None:
        self._out.put_nowait(encode_frame(EVENT, 0, json.dumps(event).encode()))

    async def drain(self) -> None: ...

    async def read(self) -> bytes:
        return await self._out.get()

    async def read_line(self) -> bytes:
        return b""

    async def close(self) -> None:
        self._out.put_nowait(b"")


class Ears:
    """A client, and what it passes on."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        settings = NodeSettings("desk", "/spool", "/run")
        timeouts = Timeouts(connect=2, answer=2, pong=0.2, idle=math.inf)
        self.client = DesktopClient(settings, self.heard.append, ConnectionSlots(), timeouts)

    async def until(self, done: Callable[[], Any]) -> None:
        await asyncio.to_thread(wait_until, done)

    def of(self, kind: type) -> list[Any]:
        return [one for one in self.heard if isinstance(one, kind)]


def launch(job: int = 7) -> Launch:
    return Launch(job, 1, SECRET, "b1", "ada", "true")


def signed(secret: str = SECRET, **fields: Any) -> dict[str, Any]:
    report = Report(**{"job": 7, "attempt": 1, "node": "desk", "boot": "b1", "outcome": EXITED, "status": 0, **fields})
    return {"event": "exited", **sign_report(report, secret)}


@run_async
async def test_a_hello_says_nothing_of_programs_and_other_databases():
    ears = Ears()
    unknown = {"job": 2**40, "attempt": 1, "tag": "", "alive": True}
    other = {"job": 9, "attempt": 1, "tag": "t" * 99, "generation": "now", "resources": [1, 2], "alive": True}
    await ears.client.accept(PretendedDesktop(attempts=[unknown, other]))
    [reached] = ears.of(NodeReachable)
    assert (reached.is_desktop, dict(reached.hello.unusable), reached.hello.highest_job) == (True, {}, 0)
    assert [(one.job, one.tag, one.generation, one.resources) for one in reached.unknown] == [(9, "t" * 64, "", ())]
    await ears.client.close()


@pytest.mark.parametrize(
    "change", [{"now": math.nan}, {"cpus": math.inf}, {"memory": -1}, {"boot": None, "cpus": "x"}, {"protocol": 0}]
)
@run_async
async def test_a_hello_that_makes_no_sense_is_refused(change):
    ears = Ears()
    with pytest.raises(NodeUnreachable):
        await ears.client.accept(PretendedDesktop({**HELLO, **change}))
    assert not ears.client.is_connected


@run_async
async def test_another_version_is_told_what_to_install():
    with pytest.raises(NodeUnreachable, match=r"its node program is another \(old\).*install the right one"):
        await Ears().client.accept(PretendedDesktop(program="old"))


@run_async
async def test_a_second_connection_waits_until_the_first_is_silent():
    ears, first = Ears(), PretendedDesktop()
    lost = await ears.client.accept(first)
    with pytest.raises(DesktopConnected, match="connected already"):
        await ears.client.accept(PretendedDesktop())
    first.is_silent = True
    await ears.client.accept(PretendedDesktop())
    await ears.client.disconnect("whoever served the first one is late", lost)
    assert (ears.client.is_connected, len(ears.of(ConnectionLost))) == (True, 1)
    await ears.client.close()


@run_async
async def test_a_report_counts_once_and_a_doubled_one_does_not():
    ears, desk = Ears(), PretendedDesktop()
    await ears.client.accept(desk)
    await ears.client.launch(launch())
    for _ in range(2):
        desk.say(signed())
    await ears.client.ping()
    assert [one.report.status for one in ears.of(Exited)] == [0]
    assert ears.of(BadReport) == []
    await ears.client.close()


BAD = {
    "forged": signed("cd" * 32),
    "of another node": signed(node="node1"),
    "of another job": {**signed(job=8), "job": 8},
    "an outcome that is none": signed(outcome="triumph"),
    "a status that is none": signed(status=2**40),
    "an instant that is none": signed(ended=math.nan),
    "counters without end": signed(counters={str(number): 1.0 for number in range(999)}),
    "a negative counter": signed(counters={"cpu_seconds_total": -1.0}),
    "an archive that is none": signed(stage_out="../../etc/passwd", stage_out_size=1),
}


@pytest.mark.parametrize("what", BAD)
@run_async
async def test_a_bad_report_is_noted_and_ends_the_connection(what):
    ears, desk = Ears(), PretendedDesktop()
    channel = await ears.client.accept(desk)
    await ears.client.launch(launch())
    desk.say(BAD[what])
    await channel.ended.wait()
    assert (len(ears.of(BadReport)), ears.of(Exited)) == (1, [])
    await ears.client.close()


@run_async
async def test_a_desktop_cannot_stop_queues_or_doubt_users():
    ears, desk = Ears(), PretendedDesktop()
    await ears.client.accept(desk)
    await ears.client.launch(launch())
    harm = {"PROLOGUE_ERROR": "unusable"}
    desk.say(signed(outcome=FAILED, event="USER_UNKNOWN", events=(("PROLOGUE_ERROR", "x" * 5000),), causes=harm))
    await ears.client.ping()
    [report] = [one.report for one in ears.of(Exited)]
    assert (report.event, report.events, report.causes) == ("USER_SHELL", (("USER_SHELL", "x" * 1000),), {})
    desk.answers["launch"] = {"refused": "unusable", "says": "the prologue"}
    with pytest.raises(NodeRefused) as refused:
        await ears.client.launch(launch(8))
    assert refused.value.word == "USER_SHELL"
    await ears.client.close()


@run_async
async def test_what_a_desktop_does_not_know_is_told_and_a_start_needs_a_date():
    ears = Ears()
    ears.client.expect(7, 1, SECRET)
    ears.client.expect(8, 1, SECRET)
    started = {"job": 8, "attempt": 1, "tag": fingerprint(SECRET), "started": "yesterday"}
    await ears.client.accept(PretendedDesktop(attempts=[started]))
    assert [(one.job, one.attempt) for one in ears.of(AttemptMissing)] == [(7, 1)]
    assert [(one.job, one.at) for one in ears.of(Started)] == [(8, None)]
    await ears.client.close()


@run_async
async def test_a_desktop_that_has_not_connected_is_not_reached_for():
    with pytest.raises(NodeUnreachable, match="it is a desktop and has not connected"):
        await Ears().client.hello()


@run_async
async def test_the_server_opens_no_connection_to_what_became_a_desktop(workspace):
    ignore = lambda *_: None  # noqa: E731
    config = Config(openssh_cmd=("false",))
    fleet = Fleet(config, workspace, InstanceIdentity("x", b"key"), ignore, ignore, ignore, ignore)

    async def is_desktop(node: str) -> bool:
        return node == "localhost"  # reached behind a pipe otherwise

    fleet.is_desktop = is_desktop
    with pytest.raises(NodeUnreachable, match="it is a desktop and has not connected"):
        await fleet.node("localhost").hello()
    await fleet.close()
