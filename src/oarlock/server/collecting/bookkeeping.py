"""The server's part of what the collector does: its rules from the settings, and what it booked, stored."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from oarlock.config import Config
from oarlock.job import summaries
from oarlock.measure.collect.retention import RetentionPolicy
from oarlock.measure.energy import redfish_file
from oarlock.measure.energy.division import BookingKey, EnergyBooking, EnergyRules
from oarlock.measure.energy.meter import ConfiguredWatts
from oarlock.measure.remote import target
from oarlock.measure.remote.target import RemoteTarget
from oarlock.model.event import Event, EventType
from oarlock.model.summary import MeasuredJob
from oarlock.server.collecting.client import CollectorClient
from oarlock.server.collecting.elsewhere import MeasurementsElsewhere
from oarlock.server.collecting.messages import ArchiveShortage, BookedEnergy, MeasuredJobs
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events
from oarlock.store.queries.usage import energy
from oarlock.store.queries.usage import summaries as stored_summaries
from oarlock.store.queries.usage.energy import BookedDay, MeteredDay

log = logging.getLogger(__name__)

_measured_jobs = msgspec.msgpack.Decoder(dict[int, MeasuredJob])

_LEAST_HOLE = 30.0
_HOLE_PERIODS = 3
_MOST_WAITING = 2  # the one that is being written, and all others in one

Bookings = dict[BookingKey, EnergyBooking]


def make_collector(root: Path, config: Config, database: Database, tables: Callable[[str], bytes]) -> CollectorClient:
    """Make the collector of a server, as the settings want it; `ConfigRefused` if what they need is not there."""
    if config.redfish_file is not None:
        redfish_file.read(config.redfish_file)  # what is wrong with it is said now, not in the log of another process
    booker = EnergyBooker(database)
    return CollectorClient(
        root,
        database.address,
        tables,
        policy=retention_policy(config),
        energy=energy_rules(config),
        on_booked=booker.take,
        booked=booker.booked,
        on_measured=partial(store_summaries, database),
        remote=remote_target(config),
        elsewhere=MeasurementsElsewhere(root, config),
        on_shortage=partial(store_shortage, database),
        on_trouble=partial(store_trouble, database),
        redfish=config.redfish_file,
    )


def store_shortage(database: Database, shortage: ArchiveShortage) -> None:
    """Write the event that the disk of the measurements is nearly full; administrators are told."""
    event = Event(EventType.ARCHIVE_SHORT_OF_ROOM, shortage.at, shortage.description)
    database.submit(lambda tx: events.add(tx, [event])).add_done_callback(_log_failure)


def store_trouble(database: Database, why: str) -> None:
    """Write the event that measurements are not kept; administrators are told."""
    event = Event(EventType.MEASUREMENTS_NOT_KEPT, int(time.time()), why)
    database.submit(lambda tx: events.add(tx, [event])).add_done_callback(_log_failure)


def _log_failure(done: Future[Any]) -> None:
    if not done.cancelled() and (error := done.exception()) is not None:
        log.error("what the collector says could not be stored", extra={"why": str(error)})


def retention_policy(config: Config) -> RetentionPolicy:
    """Return how long measurements are kept."""
    return RetentionPolicy(
        config.archive_keep_days, config.archive_thin_days, config.archive_node_days, config.archive_keep_free
    )


def remote_target(config: Config) -> RemoteTarget | None:
    """Return the engine that samples are written to; None if there is none."""
    if not config.remote_write_url:
        return None
    target.check_installed()
    token = "" if config.remote_write_token is None else config.remote_write_token.value
    return RemoteTarget(config.remote_write_url, token, config.remote_write_tenant, config.cluster_name)


def energy_rules(config: Config) -> EnergyRules:
    """Return how this site divides energy. A hole of more than three periods is not measured."""
    configured = ConfiguredWatts(config.energy_idle_watts, config.energy_busy_watts)
    return EnergyRules(
        split=str(config.energy_split),
        longest=max(_HOLE_PERIODS * float(config.sample_period), _LEAST_HOLE),
        idle_watts=config.energy_idle_watts,
        configured=configured if config.energy_busy_watts else None,
        period=float(config.sample_period),
    )


class EnergyBooker:
    """Stores what the collector booked, once and in its order.

    From the moment at which something is handed over, this is responsible for it: `booked` says up to which instant
    that is so, and a new collector goes on from there. What the database does not take is tried again with the next.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()  # a write ends in the writer's thread
        self._waiting: list[Bookings] = []
        self._is_writing = False
        self._failed = False
        self.booked: dict[str, int] = {}
        """The millisecond up to which each node is booked, of those that were since the start of this server."""

    def take(self, handed_over: BookedEnergy) -> None:
        """Take what the collector hands over."""
        bookings = dict(handed_over.bookings)
        for key, booking in bookings.items():
            self.booked[key.node] = max(self.booked.get(key.node, 0), booking.until)
        with self._lock:
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.append(bookings)
            else:
                _merge(self._waiting[-1], bookings)
        self._write_next()

    def _write_next(self) -> None:
        with self._lock:
            if self._is_writing or not self._waiting:
                return
            self._is_writing = True
            days = [booked_day(key, booking) for key, booking in self._waiting[0].items()]
        self._database.submit(lambda tx: _book(tx, days)).add_done_callback(self._written)

    def _written(self, done: Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        failed = done.cancelled() or error is not None
        with self._lock:
            self._is_writing = False
            if not failed:
                self._waiting.pop(0)
        if error is not None and not self._failed:
            log.warning("energy cannot be booked yet", extra={"why": str(error)})
        self._failed = failed
        if not failed:
            self._write_next()


def _book(tx: Tx, days: Sequence[BookedDay]) -> None:
    """Book energy; a job that is over gets its last with the next booking of what is not in the sums yet."""
    energy.book(tx, days)
    stored_summaries.reopen_ended(tx, {job for day in days for job in day.jobs})


def store_summaries(database: Database, measured: MeasuredJobs) -> "Future[None]":
    """Write what samples said of jobs with the writer's next transaction: one for all of them."""

    def write(tx: Tx) -> None:
        summaries.keep_measured(tx, _measured_jobs.decode(measured.jobs), now=int(measured.at))

    stored = database.submit(write)
    stored.add_done_callback(_log_failure)
    return stored


def _merge(before: Bookings, after: Bookings) -> None:
    for key, booking in after.items():
        if key in before:
            before[key].add(booking)
        else:
            before[key] = booking


def booked_day(key: BookingKey, booking: EnergyBooking) -> BookedDay:
    """Return what was booked as the database takes it."""
    amounts = booking.meter, booking.idle, booking.not_assigned
    return BookedDay(MeteredDay(*key, *amounts, booking.seconds, booking.until), booking.jobs, booking.job_seconds)
