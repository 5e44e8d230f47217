"""Sessions: from the request of a client to the shell on a node, and back when either of them goes away.

The server remembers nothing of a session. Its name is a secret that the client chose: who knows it and owns the job may
join again, also after a restart of this server.
"""

import asyncio
import contextlib
import logging
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Protocol, TypeVar

import msgspec

from oarlock.config import Config
from oarlock.model.errors import (
    ConnectNoop,
    JobNotRunning,
    KeyOpensNoJob,
    NodeNotOfJob,
    NodeRefused,
    NodeUnreachable,
    NotInteractive,
    NotJobOwner,
    NotSignedIn,
    OarlockError,
    SessionRefused,
    TooManyAtOnce,
    UnknownJob,
)
from oarlock.model.event import EventType
from oarlock.model.job import BEFORE_START, FINAL, JobKind, JobState
from oarlock.model.job_type import parse_types
from oarlock.node.wire.messages import EXITED, LOST, NOT_NOW, UNKNOWN, WALLTIME
from oarlock.server.nodes.client_on_node import ClientOnNode
from oarlock.server.nodes.node import NodeClient
from oarlock.server.sessions import key_proof
from oarlock.server.sessions.attendance import GRACE_SECONDS, JobAttendance
from oarlock.server.sessions.job_watch import JobFollower, JobStanding, JobWatch, standings
from oarlock.server.sessions.messages import (
    SessionPlace,
    SessionRequest,
    node_request,
    place_of,
    receive_request,
    send_event,
    send_refusal,
    unless_lost,
)
from oarlock.server.sessions.relay import RelayEnd, SessionRelay
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.job import job_keys
from oarlock.web.core import SessionConnection
from oarlock.web.identity import AccountDirectory, Caller, CallerChannel

log = logging.getLogger(__name__)

T = TypeVar("T")

_HIGHEST_JOB = 2**31 - 1  # that a database can hold
_OVER = FINAL | {JobState.FINISHING}
_AGAIN_SECONDS = 1.0  # between two tries to reach a node
_MOST_PROVING = 64  # clients at a time that nobody knows yet


class SessionCore(Protocol):
    """What sessions need of the server."""

    config: Config
    stopping: asyncio.Event
    job_watch: JobWatch

    async def read(self, question: Callable[[Tx], T]) -> T: ...
    async def client_vanished(self, ids: list[int]) -> None: ...


class SessionService:
    """All sessions of the server. `node` returns the client of a node by its name."""

    def __init__(self, core: SessionCore, node: Callable[[str], NodeClient]) -> None:
        self._core, self._node = core, node
        self._of_user: Counter[str] = Counter()
        self.attendance = JobAttendance(core, self._later)
        self._hanging_up: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._accounts = AccountDirectory()
        self._proving = 0

    def serve_on_node(self, node: str, client: ClientOnNode) -> None:
        """Serve a process on a node, such as `oarsh` in a job, in a task of its own."""
        self._later(self._serve_on_node(node, client))

    async def _serve_on_node(self, node: str, client: ClientOnNode) -> None:
        try:
            account = await self._accounts.find(client.uid)
            if account is None:
                refused: OarlockError = NotSignedIn(
                    f"{node} says that user {client.uid} connected, whom the server does not know.",
                    hint="Users have the same number on the server and on all nodes.",
                )
                send_refusal(client, refused)
                return
            caller = Caller(account, CallerChannel.SOCKET)
            if (refusal := await self.serve(caller, client, at=node)) is not None:
                log.info("session refused", extra={"node": node, "user": account.name, "why": str(refusal)})
        except TimeoutError:
            send_event(client, event="away", says=f"User {client.uid} could not be looked up in time.")
        except Exception:
            log.exception("a session failed", extra={"node": node})
        finally:
            await client.close()

    async def serve(
        self, caller: Caller | None, client: SessionConnection, *, at: str | None = None
    ) -> OarlockError | None:
        """Serve one connection to its end; return the refusal that the client got, if it got one.

        Without a caller the client has to show the key of the job.
        `at` is the node that vouches for the caller, where the server's own kernel does not: its jobs alone are open.
        """
        serving = asyncio.create_task(self._serve(caller, client, at))
        stopping = asyncio.create_task(self._core.stopping.wait())
        try:
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            if not serving.done():
                send_event(client, event="away", says="The server is stopping.")
                return None
            return serving.result()
        finally:
            for task in (serving, stopping):
                task.cancel()
            await asyncio.gather(serving, stopping, return_exceptions=True)

    async def _serve(self, caller: Caller | None, client: SessionConnection, at: str | None) -> OarlockError | None:
        try:
            if caller is None:
                request, standing = await self._proven(client)
            else:
                request = await receive_request(client)
                standing = await self._standing(caller, request, at)
            with self._counted(standing.job.user):
                if request.main:
                    await self._serve_main(request, client)
                else:
                    await self._serve_other(request, standing, client, is_in_job=at is not None)
        except OarlockError as refused:
            elsewhere = self._core.config.oarsh_servers if isinstance(refused, NodeNotOfJob) else ()
            send_refusal(client, refused, elsewhere)
            return refused
        return None

    # Clients that show the key of a job.

    async def _proven(self, client: SessionConnection) -> tuple[SessionRequest, JobStanding]:
        """Return the request of a client that has the key of a job, and how that job stands."""
        if self._proving >= _MOST_PROVING:
            raise TooManyAtOnce("Too many clients show keys at the moment.", hint="Try again in some seconds.")
        self._proving += 1
        try:
            challenge = secrets.token_hex(32)
            send_event(client, challenge=challenge)
            request = await receive_request(client)
            proof = key_proof.parse_proof(request.proof)
            standing = await self._standing_by_key(request, proof.fingerprint)
            await asyncio.to_thread(proof.verify, challenge)
        finally:
            self._proving -= 1
        if request.main or parse_types(standing.job.types).noop:
            raise ConnectNoop(standing.job.id) if not request.main else NotInteractive(standing.job.id)
        return msgspec.structs.replace(request, job=standing.job.id), standing

    async def _standing_by_key(self, request: SessionRequest, fingerprint: str) -> JobStanding:
        """Return the job that a key opens: the one that is named, else the newest on the node."""
        with_key = await self._core.read(lambda tx: standings(tx, set(job_keys.live_jobs(tx, fingerprint))))
        if request.job:
            with_key = {number: standing for number, standing in with_key.items() if number == request.job}
        newest_first = sorted(with_key.values(), key=lambda standing: standing.job.id, reverse=True)
        if not newest_first:
            raise KeyOpensNoJob(fingerprint, request.job)
        on_node = (standing for standing in newest_first if request.node is None or request.node in standing.nodes)
        return next(on_node, newest_first[0])

    @contextlib.contextmanager
    def _counted(self, user: str) -> Iterator[None]:
        most = self._core.config.sessions_per_user
        if self._of_user[user] >= most:
            raise TooManyAtOnce(
                f"{user} has {most} sessions already.",
                hint="Leave some of them; SESSIONS_PER_USER is the site's limit.",
            )
        self._of_user[user] += 1
        try:
            yield
        finally:
            self._of_user[user] -= 1
            if not self._of_user[user]:
                del self._of_user[user]

    async def _standing(self, caller: Caller, request: SessionRequest, at: str | None) -> JobStanding:
        """Return how the job stands, if the caller may enter it."""
        standing = await self._read_standing(request.job)
        job = standing.job
        # First of all: a node that lies about its users learns nothing of jobs that are elsewhere.
        if at is not None and (request.main or at not in standing.nodes):
            raise NodeNotOfJob(job.id, at)
        if not caller.owns(job.user, job.uid):
            raise NotJobOwner(job.id, job.user, caller.name)
        if parse_types(job.types).noop:
            raise ConnectNoop(job.id)
        if request.main and job.kind is not JobKind.INTERACTIVE:
            raise NotInteractive(job.id)
        return standing

    async def _read_standing(self, job_id: int) -> JobStanding:
        is_number = 0 < job_id <= _HIGHEST_JOB
        standing = (await self._core.read(lambda tx: standings(tx, {job_id}))).get(job_id) if is_number else None
        if standing is None:
            raise UnknownJob(job_id)
        return standing

    # The shell of an interactive job.

    async def _serve_main(self, request: SessionRequest, client: SessionConnection) -> None:
        with self.attendance.attending(request.job), self._core.job_watch.follow(request.job) as follower:
            standing = await self._wait_for_start(follower, client)
        if standing is None:
            await self.attendance.vanished_before_start(request.job, is_local=client.is_local)
        elif standing.state in _OVER and not request.again:
            await self._tell_end(standing, client)
        else:
            await self._run(request, standing, client)

    async def _wait_for_start(self, follower: JobFollower, client: SessionConnection) -> JobStanding | None:
        """Send the client how its job stands, until it runs or is over; None if the client goes away before that."""
        while True:
            standing = await unless_lost(follower.next(), client)
            if standing is None or standing.state not in BEFORE_START:
                return standing
            send_event(
                client,
                event="waiting",
                state=standing.state.value,
                start=standing.start,
                message=standing.job.message,
            )

    # Other sessions.

    async def _serve_other(
        self, request: SessionRequest, standing: JobStanding, client: SessionConnection, *, is_in_job: bool
    ) -> None:
        if is_in_job and standing.state in BEFORE_START:  # its command runs already, but that is not written down yet
            with self._core.job_watch.follow(request.job) as follower:
                started = await self._wait_for_start(follower, client)
            if started is None:
                return
            standing = started
        if standing.state is not JobState.RUNNING and not request.again:
            raise JobNotRunning(standing.job.id, standing.state)
        await self._run(request, standing, client)

    async def _run(self, request: SessionRequest, standing: JobStanding, client: SessionConnection) -> None:
        """Open or join the session on its node, and relay until it ends. A node that is away is waited for."""
        announced = False
        while standing.attempt is not None and standing.state not in _OVER:
            place = place_of(request, standing)
            try:
                await self._open_and_relay(request, place, client)
            except NodeUnreachable as away:
                if not announced:
                    send_event(client, event="waiting", state=standing.state.value, node=place.node, says=str(away))
                    announced = True
            except NodeRefused as refused:
                await self._check_refusal(request, refused)
            else:
                return
            if await unless_lost(asyncio.sleep(_AGAIN_SECONDS, result=True), client) is None:
                return
            standing = await self._read_standing(request.job)
        if not (request.again and await self._deliver_rest(request, standing, client)):
            await self._tell_end(standing, client)

    async def _deliver_rest(self, request: SessionRequest, standing: JobStanding, client: SessionConnection) -> bool:
        """Send a client that was away what its session printed last; return whether its node still had it."""
        if standing.attempt is None:
            return False
        try:
            await self._open_and_relay(request, place_of(request, standing), client)
        except (NodeRefused, NodeUnreachable):
            return False
        return True

    async def _check_refusal(self, request: SessionRequest, refused: NodeRefused) -> None:
        """Raise what the client is told, unless the job ends, or its supervisor could not be reached yet."""
        if request.again and refused.word == NOT_NOW:
            return
        if (
            refused.word in {UNKNOWN, NOT_NOW}
            and (await self._read_standing(request.job)).state is not JobState.RUNNING
        ):
            return
        raise SessionRefused(f"{refused.node}: {refused.says}.", hint=f"`oarstat -ej {request.job}` tells more.")

    async def _open_and_relay(self, request: SessionRequest, place: SessionPlace, client: SessionConnection) -> None:
        if (hanging_up := self._hanging_up.pop(request.session, None)) is not None:
            hanging_up.cancel()
        relay = SessionRelay(client, received=request.received)
        session = await self._node(place.node).session(
            "session-join" if request.again else "session-open",
            place.job,
            place.attempt,
            node_request(request),
            relay.from_node,
        )
        about = {"job": place.job, "node": place.node}
        log.info("session joined" if request.again else "session opened", extra=about)
        send_event(client, event="session", node=place.node, received=session.received)
        end = await relay.run(session)
        log.info("session left", extra={**about, "why": relay.why or end.value})
        if end is RelayEnd.NODE_LOST:
            send_event(client, event="away", says=f"The connection to {place.node} was lost ({session.why}).")
        elif end is not RelayEnd.DONE and not self._core.stopping.is_set():
            await self._left(request.session, place, at_once=client.is_local or end is RelayEnd.BROKEN)

    async def _left(self, session: str, place: SessionPlace, *, at_once: bool) -> None:
        """Hang up a session whose client is gone; one that came over the network may come back."""
        if at_once:
            await self._hang_up(session, place)
        else:
            self._hanging_up[session] = self._later(self._hang_up_later(session, place))

    async def _hang_up_later(self, session: str, place: SessionPlace) -> None:
        await asyncio.sleep(GRACE_SECONDS)
        self._hanging_up.pop(session, None)
        await self._hang_up(session, place)

    async def _hang_up(self, session: str, place: SessionPlace) -> None:
        with contextlib.suppress(NodeRefused, NodeUnreachable):  # it is over, or its node hangs it up by itself
            await self._node(place.node).hang_up(place.job, place.attempt, session)

    async def _tell_end(self, standing: JobStanding, client: SessionConnection) -> None:
        says = await self._core.read(lambda tx: why_ended(tx, standing))
        send_event(client, event="ended", state=standing.state.value, says=says)

    def _later(self, what: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(what)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Forget who may come back; nodes hang up what nobody joins."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._accounts.close()


def why_ended(tx: Tx, standing: JobStanding) -> str:
    """Return why a job ended that its user did not end by leaving the shell; else an empty text."""
    outcome = "" if standing.attempt is None else standing.attempt.outcome
    if outcome == EXITED:
        return ""
    if outcome == WALLTIME:
        return "its walltime is over"
    noted = [entry.event for entry in events.of_jobs(tx, [standing.job.id])]
    for kind in (EventType.CANNOT_NOTIFY_OARSUB, EventType.FRAG_JOB_REQUEST):
        if says := next((event.description for event in noted if event.type is kind), ""):
            return says
    if outcome == LOST:
        return "its node lost it"
    return standing.job.message
