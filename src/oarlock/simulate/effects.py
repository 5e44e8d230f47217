"""The platform of effects in a simulated cluster: nothing waits; scripts and accounts fail when a test says so."""

from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from oarlock.config import Config
from oarlock.job.cluster import power
from oarlock.job.reactor.nodes import Flag, Ping
from oarlock.job.reactor.reactor import Reactor
from oarlock.job.run.effects import Notify, RunEpilogue
from oarlock.job.run.reports import Exited, NodesWoken, NotificationSent
from oarlock.model.event import EventType
from oarlock.node.attempt.user.identity import LookUpFailed, UserMissing
from oarlock.node.wire.messages import FAILED, Launch
from oarlock.simulate.nodes import SimulatedClock, SimulatedNode

T = TypeVar("T")


@dataclass(slots=True)
class _SimulatedFlag:
    """A flag that nobody has to wait for."""

    is_set: bool = False

    def set(self) -> None:
        self.is_set = True

    async def wait(self) -> None:
        if not self.is_set:
            raise AssertionError("a simulated effect waits")


@dataclass(frozen=True, slots=True)
class _SimulatedPlace:
    """A place that is ready, or failed, as soon as its launch was accepted."""

    node: SimulatedNode
    key: tuple[int, int]

    async def ended(self) -> Exited | None:
        report = self.node.runs[self.key].report
        return Exited(self.node.name, report) if report is not None and report.outcome == FAILED else None


@dataclass
class SimulatedPlatform:
    """What effects need of a server, without waiting. `scripts`: which of the server's scripts fail, and how.

    `accounts` are users whom the server does not find, with the event that says why.
    `slept`, `woken`, `healed` and `notified` record what was asked for; nodes that are put to sleep are down at once,
    and come up when a test says so.
    """

    nodes: Mapping[str, SimulatedNode]
    clock: SimulatedClock
    reactor: Reactor
    scripts: dict[str, EventType] = field(default_factory=dict)
    accounts: dict[str, EventType] = field(default_factory=dict)
    woken: list[tuple[str, ...]] = field(default_factory=list)
    slept: list[tuple[str, ...]] = field(default_factory=list)
    healed: list[tuple[str, ...]] = field(default_factory=list)
    notified: list[tuple[int, str, str]] = field(default_factory=list)
    _waking: dict[str, int] = field(default_factory=dict)

    def restart(self, reactor: Reactor) -> None:
        """Begin again for another server: which nodes are being woken is forgotten."""
        self.reactor = reactor
        self._waking.clear()

    def look_at_woken(self, config: Config) -> None:
        """Report nodes that were woken: those that answer, and those whose time is over."""
        up = frozenset(name for name in self._waking if self.nodes[name].up)
        begun = self.clock.now - power.wakeup_timeout(config, len(self._waking))
        late = {name: "unplugged" for name, since in self._waking.items() if since <= begun and name not in up}
        self._waking = {name: since for name, since in self._waking.items() if name not in up | late.keys()}
        if up or late:
            self.reactor.receive(NodesWoken(up, late))

    # Tasks: each ends before the next begins.

    def node(self, name: str) -> SimulatedNode:
        """Return a node by its name."""
        return self.nodes[name]

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Carry an effect out."""
        try:
            effect.send(None)
        except StopIteration:
            return
        raise AssertionError("a simulated effect waits")

    async def gather(self, requests: Sequence[Awaitable[T]]) -> list[T]:
        """Await requests one after the other; when the server dies in one, the others are never made."""
        waiting = iter(requests)
        try:
            return [await request for request in waiting]
        finally:
            for request in waiting:
                request.close()  # type: ignore[attr-defined]

    async def pause(self, seconds: float) -> None:
        """Return at once."""

    def flag(self) -> Flag:
        """Return a flag that is not set."""
        return _SimulatedFlag()

    async def wait(self, flag: Flag, seconds: float) -> bool:
        """Refuse to wait: on simulated nodes no number of a job is taken."""
        raise AssertionError(f"a simulated effect waits {seconds} s for {flag}")

    async def stage_in(self, node: str, launch: Launch, killed: Flag) -> None:
        """Bring nothing: simulated jobs read no files."""

    async def stage_out(self, epilogue: RunEpilogue) -> str:  # noqa: ARG002
        """Fetch nothing: simulated jobs write no files."""
        return ""

    @contextmanager
    def place(self, job: int, attempt: int, node: str, *, seconds: float) -> Iterator[_SimulatedPlace]:  # noqa: ARG002
        """Yield a place that is ready after its launch."""
        yield _SimulatedPlace(self.nodes[node], (job, attempt))

    # The site.

    async def uid(self, user: str) -> int | None:
        """Return no number, unless the user is one of those who are not found."""
        event = self.accounts.get(user)
        if event is not None:
            refusal = UserMissing if event is EventType.USER_UNKNOWN else LookUpFailed
            raise refusal(f"the server does not find {user}")
        return None

    async def prologue(self, job: int) -> tuple[EventType | None, str]:  # noqa: ARG002
        """Fail if a test says so."""
        return self.scripts.get("prologue"), "on purpose"

    async def epilogue(self, job: int) -> tuple[EventType | None, str]:  # noqa: ARG002
        """Fail if a test says so."""
        return self.scripts.get("epilogue"), "on purpose"

    async def after_suspend(self, job: int) -> str:  # noqa: ARG002
        """Succeed."""
        return ""

    async def before_resume(self, job: int) -> str:  # noqa: ARG002
        """Succeed."""
        return ""

    async def check(self, nodes: Sequence[str], ping: Ping) -> dict[str, str]:
        """Check nodes by pinging them."""
        return await ping(nodes)

    async def wake(self, nodes: Sequence[str], ping: Ping) -> None:  # noqa: ARG002
        """Note that nodes are being woken; `look_at_woken` reports them."""
        new = [name for name in nodes if name not in self._waking]
        if new:
            self.woken.append(tuple(new))
            self._waking |= dict.fromkeys(new, self.clock.now)

    async def sleep(self, nodes: Sequence[str]) -> None:
        """Put nodes to sleep at once."""
        self.slept.append(tuple(nodes))
        for name in nodes:
            self.nodes[name].up = False

    async def heal(self, resources: Sequence[tuple[int, str]]) -> str:
        """Note the nodes; fail if a test says so."""
        self.healed.append(tuple(dict.fromkeys(name for _, name in resources)))
        return "on purpose" if "healing" in self.scripts else ""

    async def notify(self, notice: Notify) -> None:
        """Note a notice."""
        self.notified.append((notice.job, notice.tag, notice.how))
        self.reactor.receive(NotificationSent(notice.number))
