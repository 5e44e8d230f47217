"""The energy of a cluster that others run: what meters told an engine, divided among the jobs that its nodes had.

As for jobs of our own, jobs + idle + not assigned = meter. Who held which cores is known to the second from the copy of
the cluster, so a stretch is booked once the copy is complete up to its end.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from oarlock.job import summaries
from oarlock.measure.energy.division import BookingKey
from oarlock.measure.energy.ledger import KnownHolding, book_known
from oarlock.measure.energy.meter import CONTROLLER
from oarlock.measure.remote.engine import PrometheusTarget
from oarlock.measure.remote.node_power import PowerSamples, read_power
from oarlock.model.source import SourceHealth
from oarlock.server.collecting.bookkeeping import booked_day, energy_rules
from oarlock.server.sources.follow import DAY, FollowedCore, QuestionLog
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.usage import energy, unmeasured
from oarlock.store.queries.usage import summaries as stored_summaries
from oarlock.store.queries.usage.energy import BookedDay
from oarlock.store.queries.usage.unmeasured import HeldCores

_UNTIL = "energy booked until"
_SETTLED = 300
"""Seconds after which a resource manager has reported the end of a job."""
_SHORTEST, _LONGEST = 300, 6 * 3600  # of what is booked at once
_USUAL_NODES = 500  # more of them are asked for less time at once
_BEFORE = 900  # seconds: the last reading before a stretch is where it begins
_MILLI = 1000


class NodeEnergy:
    """Books what nodes took, stretch by stretch. `seen_until` tells how far the copy of the cluster is complete."""

    def __init__(self, target: PrometheusTarget, core: FollowedCore, seen_until: Callable[[], int]) -> None:
        self._target, self._core, self._seen_until = target, core, seen_until
        self._log = QuestionLog("Prometheus: power", "energy of nodes and jobs")

    @property
    def health(self) -> SourceHealth:
        """How the engine fares when it is asked for power."""
        return self._log.health

    async def look(self) -> bool:
        """Book the next stretch, if it is long enough; return whether another is due at once."""
        since, cores = await self._core.read(self._begin)
        longest = _LONGEST * _USUAL_NODES // max(len(cores), _USUAL_NODES)
        last = self._seen_until() - _SETTLED
        until = min(since + max(longest, _SHORTEST), last)
        if until - since < _SHORTEST or not cores:
            return False
        with self._log.timed(self._core.now):
            question = partial(read_power, self._target, since=since - _BEFORE, until=until, nodes=frozenset(cores))
            samples = await asyncio.to_thread(question)
        await self._core.write(lambda tx: self._book(tx, samples, cores, since, until))
        while await self._core.write(lambda tx: summaries.book(tx, now=self._core.now)):
            pass
        return until < last - _SHORTEST

    def _begin(self, tx: Tx) -> tuple[int, dict[str, int]]:
        first = self._core.now - self._core.config.source_history * DAY
        return int(facts.get(tx, _UNTIL) or first), unmeasured.node_cores(tx)

    def _book(self, tx: Tx, samples: PowerSamples, cores: Mapping[str, int], since: int, until: int) -> None:
        """Book a stretch and how far that is in one transaction; sums and summaries of jobs that ended follow.

        Not of those whose last samples are not in their summary yet: it would look as if they were.
        """
        booked = energy.booked_until(tx, since=since // DAY * DAY - DAY)
        held = unmeasured.held_between(tx, since - _BEFORE, until)
        by_node = _by_node(held, float(until))
        rules = energy_rules(self._core.config)
        days: list[BookedDay] = []
        for node, all_readings in samples.nodes.items():
            readings = [reading for reading in all_readings if reading.at * _MILLI >= booked.get(node, 0)]
            of_days = book_known(
                readings, by_node.get(node, ()), cores=cores[node], rules=rules, gpus=samples.gpus.get(node, {})
            )
            days += [booked_day(BookingKey(node, day, CONTROLLER), booking) for day, booking in of_days.items()]
        energy.book(tx, days)
        complete = unmeasured.measured_to_their_end(tx, {job for day in days for job in day.jobs})
        stored_summaries.reopen_ended(tx, complete)
        facts.put(tx, _UNTIL, str(until))


def _by_node(held: Sequence[HeldCores], until: float) -> dict[str, list[KnownHolding]]:
    by_node: dict[str, list[KnownHolding]] = {}
    for row in held:
        holding = KnownHolding(row.job, row.cores, float(row.start), float(row.stop or until))
        by_node.setdefault(row.node, []).append(holding)
    return by_node
