"""Verbs about maintenance windows."""

from typing import Annotated

from msgspec import Meta, Struct

from oarlock.job.cluster import maintenance
from oarlock.job.cluster.maintenance import AffectedJobs
from oarlock.model.maintenance import Maintenance
from oarlock.store.queries import maintenance as stored
from oarlock.web.context import Call, Nought
from oarlock.web.decode import Asked, Id, Instant, Text, Word
from oarlock.web.policy import May
from oarlock.web.registry import verb
from oarlock.web.verbs.site import Nothing


class Windows(Struct, frozen=True):
    """Maintenance windows that are not over, by their begin."""

    windows: list[Maintenance]


@verb(
    "maintenance.list", "GET /maintenance", may=May.USERS, asks=Nothing, answers=Windows,
    says="List the maintenance windows that are not over.",
)  # fmt: skip
async def listed(call: Call, _asked: Nothing) -> Windows:
    """Give them by their begin."""
    now = call.now
    return Windows(await call.read(lambda tx: stored.listed(tx, now=now)))


class NewWindow(Asked, kw_only=True):
    """A window: when, and of which resources; without nodes and without a condition, of all."""

    name: Annotated[str, Meta(min_length=1, max_length=100)]
    start: Instant
    stop: Instant
    nodes: Annotated[list[Word], Meta(max_length=10_000)] | None = None
    where: Text | None = None


@verb(
    "maintenance.add", "POST /maintenance", may=May.ADMINS, asks=NewWindow, answers=AffectedJobs,
    says="Keep resources free of jobs for a time: no job is started that would still be there.",
)  # fmt: skip
async def add(call: Call, asked: NewWindow) -> AffectedJobs:
    """Add a window; the scheduler looks again."""
    by, now = call.who.name, call.now
    met = await call.change(
        lambda tx: maintenance.add(
            tx,
            name=asked.name,
            start=asked.start,
            stop=asked.stop,
            nodes=asked.nodes,
            where=asked.where,
            by=by,
            now=now,
        ),
        AffectedJobs,
    )
    call.core.wake_scheduler()
    return met


class OneWindow(Asked):
    """A window by its number."""

    id: Id


@verb(
    "maintenance.remove", "DELETE /maintenance/{id}", may=May.ADMINS, asks=OneWindow, answers=Nought,
    says="Take a maintenance window back, or end it.",
)  # fmt: skip
async def remove(call: Call, asked: OneWindow) -> Nought:
    """Remove it; the scheduler looks again."""
    done = await call.do(lambda tx: stored.remove(tx, asked.id))
    call.core.wake_scheduler()
    return done
