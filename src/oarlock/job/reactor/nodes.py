"""What the effect runner needs of nodes, and of the process that it runs in. Real and simulated ones implement it."""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

from oarlock.job.run.effects import Notify, RunEpilogue
from oarlock.job.run.reports import Exited, Hello
from oarlock.model.event import EventType
from oarlock.node.wire.messages import Launch

T = TypeVar("T")

Ping = Callable[[Sequence[str]], Awaitable[dict[str, str]]]
"""Pings nodes; returns the reasons of those that do not answer."""


class NodeVerbs(Protocol):
    """The requests that effects make of a node. They raise `NodeRefused` and `NodeUnreachable`."""

    async def hello(self) -> Hello: ...
    async def launch(self, launch: Launch) -> None: ...
    def expect(self, job: int, attempt: int, secret: str) -> None: ...
    async def kill(self, job: int, attempt: int, *, grace: int | None = None) -> None: ...
    async def signal(self, job: int, attempt: int, number: int) -> None: ...
    async def checkpoint(self, job: int, attempt: int) -> None: ...
    async def suspend(self, job: int, attempt: int) -> None: ...
    async def resume(self, job: int, attempt: int) -> None: ...
    async def walltime(self, job: int, attempt: int, seconds: int) -> None: ...
    async def end(self, job: int, attempt: int) -> None: ...
    async def forget(self, keys: Iterable[tuple[int, int]]) -> None: ...
    async def discard(self, job: int, attempt: int, tag: str) -> None: ...
    async def end_unknown(self, job: int, attempt: int, tag: str) -> None: ...
    async def ping(self) -> None: ...


class Flag(Protocol):
    """Something that happens once, and can be awaited (`asyncio.Event` is one)."""

    def set(self) -> None: ...
    async def wait(self) -> object: ...


class AwaitedPlace(Protocol):
    """A place on another node than the first, which is being prepared."""

    async def ended(self) -> Exited | None:
        """Wait until it is ready (None) or failed; `NodeUnreachable` if neither happens in time."""
        ...


class EffectPlatform(Protocol):
    """What effects need of the process that carries them out: nodes, tasks, accounts, programs of the site."""

    def node(self, name: str) -> NodeVerbs:
        """Return a node by its name."""
        ...

    def start(self, effect: Coroutine[Any, Any, None]) -> None:
        """Start to carry an effect out; it must delay no other."""
        ...

    async def gather(self, requests: Sequence[Awaitable[T]]) -> Sequence[T]:
        """Await requests that are made at the same time; return what they give, in their order."""
        ...

    async def pause(self, seconds: float) -> None:
        """Wait, so that more of the same can be sent together."""
        ...

    def flag(self) -> Flag:
        """Return a flag that is not set."""
        ...

    async def wait(self, flag: Flag, seconds: float) -> bool:
        """Wait for a flag, not longer than some seconds; return whether it was set."""
        ...

    async def stage_in(self, node: str, launch: Launch, killed: Flag) -> None:
        """Bring the archive of a job to a node, unless it is there or the job is killed meanwhile (`NodeRefused`)."""
        ...

    async def stage_out(self, epilogue: RunEpilogue) -> str:
        """Fetch what a job wrote from its node, however often the connection is lost; return what went wrong."""
        ...

    def place(self, job: int, attempt: int, node: str, *, seconds: float) -> AbstractContextManager[AwaitedPlace]:
        """Await the report of a place for so many seconds.

        To be entered before the launch, since the report may come before its answer.
        """
        ...

    async def uid(self, user: str) -> int | None:
        """Return the number of a user, None where it is of no importance; `UserRefused` if it is not found."""
        ...

    async def prologue(self, job: int) -> tuple[EventType | None, str]:
        """Run the server's prologue; return the event if it failed, and why."""
        ...

    async def epilogue(self, job: int) -> tuple[EventType | None, str]:
        """Run the server's epilogue; return the event if it failed, and why."""
        ...

    async def after_suspend(self, job: int) -> str:
        """Run the site's program for a suspended job; return what went wrong."""
        ...

    async def before_resume(self, job: int) -> str:
        """Run the site's program for a job that is to be resumed; return what went wrong."""
        ...

    async def check(self, nodes: Sequence[str], ping: Ping) -> dict[str, str] | None:
        """Check nodes as the site wants it; return the reasons of those that do not answer. None: it is not known."""
        ...

    async def wake(self, nodes: Sequence[str], ping: Ping) -> None:
        """Wake nodes, and report which answer."""
        ...

    async def sleep(self, nodes: Sequence[str]) -> None:
        """Put nodes to sleep."""
        ...

    async def heal(self, resources: Sequence[tuple[int, str]]) -> str:
        """Run the site's healing program for resources of Suspected nodes; return what went wrong."""
        ...

    async def notify(self, notice: Notify) -> None:
        """Notify a user, and report that."""
        ...
