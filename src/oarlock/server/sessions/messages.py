"""What clients of sessions ask, and what they are sent."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from oarlock.model.errors import BadRequest, NodeNotOfJob, OarlockError
from oarlock.node.wire.stream import CONTROL, StreamBroken
from oarlock.node.wire.terminal_modes import MOST_MODES
from oarlock.server.sessions.job_watch import JobStanding
from oarlock.web.core import SessionConnection

T = TypeVar("T")

_REQUEST_SECONDS = 10.0


class SessionRequest(Struct, frozen=True, forbid_unknown_fields=True):
    """What a client asks for on its upgraded connection.

    `session` is the name that it chose. `main`: the shell with which an interactive job begins and ends. `again`: the
    session was opened before, and the client has `received` so many bytes of it. `modes` are those of its terminal.
    `proof` is a signature by the key of a job, in the place of a name; the job may then be left out (0).
    """

    session: Annotated[str, Meta(min_length=32, max_length=64, pattern="^[0-9a-f]+$")]
    job: int = 0
    main: bool = False
    again: bool = False
    received: Annotated[int, Meta(ge=0)] = 0
    node: str | None = None
    command: str | None = None
    terminal: tuple[int, int] | None = None
    modes: Annotated[dict[str, Annotated[int, Meta(ge=0, le=255)]], Meta(max_length=MOST_MODES)] = {}
    environment: dict[str, str] = {}
    proof: str = ""


class SessionPlace(NamedTuple):
    """Where a session is: the attempt, and the node."""

    job: int
    attempt: int
    node: str


async def receive_request(client: SessionConnection) -> SessionRequest:
    try:
        async with asyncio.timeout(_REQUEST_SECONDS):
            frame = await client.receive()
        if frame is None or frame[:1] != CONTROL:
            raise BadRequest("A session begins with a request.", hint="Send it as JSON.")
        return msgspec.json.decode(frame[1:], type=SessionRequest)
    except TimeoutError:
        raise BadRequest(f"No request came within {_REQUEST_SECONDS:g} s.") from None
    except (msgspec.DecodeError, StreamBroken) as error:
        raise BadRequest(f"The request for a session cannot be read: {error}.") from None


def place_of(request: SessionRequest, standing: JobStanding) -> SessionPlace:
    node = request.node or standing.nodes[0]
    if standing.attempt is None or node not in standing.nodes:
        raise NodeNotOfJob(request.job, node)
    return SessionPlace(request.job, standing.attempt.number, node)


def node_request(request: SessionRequest) -> dict[str, Any]:
    """Return the request for the node."""
    about: dict[str, Any] = {"session": request.session, "received": request.received}
    if request.again:
        return about
    terminal = None if request.terminal is None else list(request.terminal)
    return {
        **about,
        "main": request.main,
        "command": request.command,
        "terminal": terminal,
        "modes": request.modes,
        "environment": request.environment,
    }


def send_event(client: SessionConnection, **what: object) -> None:
    client.send(CONTROL + msgspec.json.encode(what))


def send_refusal(client: SessionConnection, refused: OarlockError, elsewhere: Sequence[str] = ()) -> None:
    """Send a refusal, and the servers of other clusters, where the same key may open another job."""
    about = {"error": str(refused), "hint": refused.hint, "kind": type(refused).__name__}
    send_event(client, refused=about | ({"servers": elsewhere} if elsewhere else {}))


async def unless_lost(what: Coroutine[Any, Any, T], client: SessionConnection) -> T | None:
    """Wait for something; None if the client goes away before it happens."""
    happening = asyncio.create_task(what)
    lost = asyncio.create_task(client.lost.wait())
    try:
        await asyncio.wait([happening, lost], return_when=asyncio.FIRST_COMPLETED)
        return happening.result() if happening.done() else None
    finally:
        for task in (happening, lost):
            task.cancel()
        await asyncio.gather(happening, lost, return_exceptions=True)
