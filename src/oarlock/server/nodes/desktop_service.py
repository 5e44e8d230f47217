"""Desktops that connect: each shows a token of its node, is admitted, and then is a node like any other.

The connection is an upgraded one, as that of a session. Its first frame is a greeting, the answer to it a welcome or a
refusal; from then on the desktop passes the bytes of its node program on.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, Literal, Protocol, TypeVar

import msgspec
from msgspec import Meta, Struct

from oarlock.config import Config
from oarlock.job.cluster import desktops
from oarlock.job.cluster.desktops import DesktopIdentity
from oarlock.job.cluster.inventory import Machine
from oarlock.model.errors import BadRequest, Forbidden, NodeUnreachable, OarlockError, Stopping
from oarlock.model.resource import NextState
from oarlock.node.wire.stream import CONTROL, StreamBroken
from oarlock.server.nodes.channel import OtherProgram
from oarlock.server.nodes.desktop import DesktopClient
from oarlock.server.nodes.fleet import Fleet
from oarlock.server.nodes.processes import DesktopNodeProcess
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import resources
from oarlock.store.queries.users import user_records
from oarlock.web.core import ClockInterface, SessionConnection
from oarlock.web.identity import Caller

log = logging.getLogger(__name__)

T = TypeVar("T")

_GREETING_SECONDS = 10.0
_MOST_CPUS = 4096


class Greeting(Struct, frozen=True, forbid_unknown_fields=True):
    """What a desktop says first: which machine it is, and what that is made of."""

    machine: Annotated[str, Meta(pattern="^[0-9a-f]{32}$")]
    description: Machine


class DesktopMessage(Struct, frozen=True):
    """What a desktop says later."""

    event: Literal["leave"]


class DesktopCore(Protocol):
    """What desktops need of the server."""

    config: Config
    stopping: asyncio.Event

    @property
    def clock(self) -> ClockInterface: ...
    async def read(self, question: Callable[[Tx], T]) -> T: ...
    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def set_state(self, ids: Sequence[int], state: NextState) -> list[int]: ...


class DesktopService:
    """All desktops of the server."""

    def __init__(self, core: DesktopCore, fleet: Fleet) -> None:
        self._core, self._fleet = core, fleet
        self._tokens: dict[str, str] = {}  # node → the hash of the token that it showed

    async def open(self) -> None:
        """Learn which nodes are desktops: the server must not try to reach them."""
        self._fleet.desktops |= await self._core.read(resources.desktops)

    async def serve(self, caller: Caller, connection: SessionConnection) -> OarlockError | None:
        """Serve one connection to its end; return the refusal that the desktop got, if it got one."""
        try:
            await self._serve(caller, connection)
        except OarlockError as refused:
            _tell(connection, refused={"error": str(refused), "hint": refused.hint, "kind": type(refused).__name__})
            return refused
        return None

    async def _serve(self, caller: Caller, connection: SessionConnection) -> None:
        greeting, now = await _receive_greeting(connection), int(self._core.clock.now())
        desktop = DesktopIdentity(_node_of(caller), caller.token, greeting.machine, greeting.description)
        await self._core.write(lambda tx: desktops.admit(tx, self._core.config, desktop, now=now))
        client, leaving = self._fleet.desktop(desktop.node), asyncio.Event()
        _tell(connection, event="welcome", node=desktop.node)
        try:
            channel = await client.accept(DesktopNodeProcess(connection, lambda data: _take(data, leaving)))
        except NodeUnreachable as error:
            if isinstance(error.__cause__, OtherProgram):
                raise BadRequest(f"The node program of {desktop.node} is not used: {error.why}.") from error
            raise
        self._tokens[desktop.node] = desktop.token
        await _first_of(channel.ended.wait(), self._core.stopping.wait(), self._leave(client, connection, leaving))
        if self._core.stopping.is_set():
            raise Stopping("The server is stopping.", hint="It is tried again.")
        await client.disconnect("it left" if leaving.is_set() else channel.why, channel)
        await self._date_absent()

    async def _leave(self, client: DesktopClient, connection: SessionConnection, leaving: asyncio.Event) -> None:
        """Wait until the desktop wants to leave; then end its jobs, and return when their files are here."""
        await leaving.wait()
        now = int(self._core.clock.now())
        ids = await self._core.write(lambda tx: desktops.take_leave(tx, client.name, now=now))
        jobs = await self._core.set_state(ids, NextState.ABSENT) if ids else []
        log.info("desktop leaves", extra={"node": client.name, "jobs": jobs})
        _tell(connection, event="leaving", jobs=jobs)
        await client.until_idle()
        _tell(connection, event="left")

    async def watch(self) -> None:
        """Date desktops that are away, and hang up those whose token is no longer good."""
        await self.open()
        await self._date_absent()
        connected = self._fleet.connected_desktops()
        shown = {node: token for node, token in self._tokens.items() if node in connected}
        self._tokens = shown
        if not shown:
            return
        now, admins = int(self._core.clock.now()), frozenset(self._core.config.admins)
        good = await self._core.read(lambda tx: user_records.valid_tokens(tx, shown.values(), now=now))
        for node, token in shown.items():
            if token not in good or (admins and good[token] not in admins):
                log.warning("desktop hung up: its token is no longer good", extra={"node": node})
                await connected[node].disconnect("its token is no longer good")

    async def _date_absent(self) -> None:
        """Set the date from which on desktops that are not connected are Suspected."""
        connected = set(self._fleet.connected_desktops())
        ids = await self._core.read(lambda tx: desktops.undated(tx, connected))
        if ids:
            now = int(self._core.clock.now())
            at = now + self._core.config.desktop_computing_expiry
            await self._core.write(lambda tx: desktops.expire(tx, ids, at=at, now=now))


async def _first_of(*what: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several; what it raises is raised, and the others are cancelled."""
    tasks = [asyncio.ensure_future(each) for each in what]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _receive_greeting(connection: SessionConnection) -> Greeting:
    try:
        async with asyncio.timeout(_GREETING_SECONDS):
            frame = await connection.receive()
        if frame is None or frame[:1] != CONTROL:
            raise BadRequest("A desktop begins with a greeting.", hint="Use `oarlock desktop`.")
        greeting = msgspec.json.decode(frame[1:], type=Greeting)
    except TimeoutError:
        raise BadRequest(f"No greeting came within {_GREETING_SECONDS:g} s.") from None
    except (msgspec.DecodeError, StreamBroken) as error:
        raise BadRequest(f"The greeting of the desktop cannot be read: {error}.") from None
    cpus = [cpu for socket in greeting.description.sockets for core in socket for cpu in core]
    if not cpus or len(cpus) > _MOST_CPUS or not all(0 <= cpu < _MOST_CPUS for cpu in cpus):
        raise BadRequest(f"A desktop has 1 to {_MOST_CPUS} CPUs; this one names {len(cpus)}.")
    return greeting


def _node_of(caller: Caller) -> str:
    """Return the node that a token is good for; one of another cluster runs no jobs of ours."""
    scope = caller.scope
    if scope is None or not scope.node or scope.cluster:
        words = "nothing here" if scope is None else scope.words
        raise Forbidden(
            f"This token is good for {words}, and for no desktop.",
            hint="An administrator makes one: oarlock token add --node NAME -o FILE.",
        )
    return scope.node


def _take(data: bytes, leaving: asyncio.Event) -> None:
    """Take a message of a desktop; what is none is passed over."""
    with contextlib.suppress(msgspec.DecodeError):
        msgspec.json.decode(data, type=DesktopMessage)
        leaving.set()


def _tell(connection: SessionConnection, **what: object) -> None:
    connection.send(CONTROL + msgspec.json.encode(what))
