"""The planning process: reads requests from its socket, writes decisions, and ends with its server.

Between passes it caches what did not change (`job/plan_cache`).
"""

import sys
import time
from typing import BinaryIO

import msgspec

from oarlock.job.plan_cache import CachedPlanner
from oarlock.job.run.starting import schedule
from oarlock.job.run.starting.schedule import Decision
from oarlock.model.snapshot import SitePlan
from oarlock.plan.settings import PlanSettings
from oarlock.store.engine.database import Database
from oarlock.store.engine.opening import parse_address
from oarlock.store.queries.planning import plans

LENGTH = 4
"""Bytes of the length before each message between server and planning process."""


class PlanRequest(msgspec.Struct, frozen=True):
    """A scheduling pass: the database, the settings, and a time limit.

    Without `dates` only the jobs that start now are wanted, not when the others will start. `site_plans`: what programs
    of the site decided, by queue.
    """

    where: str
    how: PlanSettings
    karma_window: int
    now: int
    seconds: float
    dates: bool = True
    site_plans: dict[str, SitePlan] = {}


def main(requests: BinaryIO, responses: BinaryIO) -> None:
    """Plan until the other end closes; a pass that fails ends the process, and the server starts another."""
    opened: dict[str, PlannedDatabase] = {}
    while body := _read(requests):
        request = msgspec.msgpack.decode(body, type=PlanRequest)
        if request.where not in opened:
            opened[request.where] = PlannedDatabase(Database(parse_address(request.where)))
        response = msgspec.msgpack.encode(opened[request.where].decide(request))
        responses.write(len(response).to_bytes(LENGTH, "big") + response)
        responses.flush()


class PlannedDatabase:
    """A database that is planned from pass to pass."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._how: tuple[object, ...] = ()
        self._keeper: CachedPlanner | None = None

    def decide(self, request: PlanRequest) -> Decision:
        """Run one scheduling pass on the database as it is."""
        end = time.monotonic() + request.seconds
        if self._keeper is None or self._how != (request.how, request.karma_window):
            self._keeper = CachedPlanner(request.how, karma_window=request.karma_window)
            self._how = (request.how, request.karma_window)
        with self._database.read() as tx:
            snapshot = self._keeper.read(tx, now=request.now, site_plans=request.site_plans)
            stored = plans.read(tx) if request.dates else None
        make = self._keeper.whole if request.dates else self._keeper.starts
        decision = make(snapshot, now=request.now, out_of_time=lambda: time.monotonic() > end)
        # Little has to travel, and to be written, where nearly all dates are those of the last pass.
        return schedule.only_changes(decision, stored) if decision.whole and stored is not None else decision


def _read(stream: BinaryIO) -> bytes:
    length = stream.read(LENGTH)
    return stream.read(int.from_bytes(length, "big")) if len(length) == LENGTH else b""


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
