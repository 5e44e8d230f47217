"""Measuring inside the node program: a sample each period, taken in a thread, sent in a form of few bytes.

The program's loop never waits for a sample: it starts one when it is due, looks again soon, and sends it once it is
there. A file system that hangs thus costs samples, never a launch.

How a sample is written is in `wire`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from oarlock.node.measure.wire import SampleEncoder
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import BAD, NodeRequestRefused

if TYPE_CHECKING:
    import threading

    from oarlock.node.measure.sampler import Sample, Sampler

IDLE_SECONDS = 60.0
"""How often a node without jobs is measured, at most."""

_FIRST_LOOK, _LAST_LOOK = 0.02, 1.0  # seconds between two looks whether a sample is ready
_NEVER = float("inf")
_LONGEST = 366 * 86_400


class MeasureChange(NamedTuple):
    """How a node shall measure for a while: for so many seconds or, without, until the jobs there now are over."""

    period: float | None = None
    sources: tuple[str, ...] = ()  # besides those of the settings; with a `-` before it, one is left out
    perf_events: tuple[str, ...] = ()
    seconds: float | None = None


def parse_change(body: Body) -> MeasureChange:
    """Parse a change; raise `NodeRequestRefused` for a source or an event that does not exist, and odd numbers."""
    from oarlock.node.sources import assemble
    from oarlock.node.sources.job import perf

    change = MeasureChange(
        body.get("period"), tuple(body.get("sources", ())), tuple(body.get("perf_events", ())), body.get("seconds")
    )
    for name, number in (("period", change.period), ("seconds", change.seconds)):
        if number is not None and not (isinstance(number, (int, float)) and 0 < number <= _LONGEST):
            raise NodeRequestRefused(BAD, f"{name} is {number!r}, not a number of seconds")
    unknown = [event for event in change.perf_events if event not in perf.EVENTS]
    if unknown:
        raise NodeRequestRefused(BAD, f"there is no event `{unknown[0]}`; there are {', '.join(perf.EVENTS)}")
    try:
        assemble.chosen_names(change.sources)
    except ValueError as error:
        raise NodeRequestRefused(BAD, str(error)) from error
    return change


class _InForce(NamedTuple):
    """A change, and what ends it: an instant (by the monotonic clock), or the end of jobs."""

    change: MeasureChange
    until: float
    jobs: frozenset[int]


_USUALLY = _InForce(MeasureChange(), _NEVER, frozenset())


class SamplingThread:
    """The program's `Sampling`, every `period` seconds; never if that is 0. `make` is called in the thread.

    `sources` are those of the settings, as `MeasureChange` has them; `make` makes a sampler with the usual ones. While
    no job is there, a sample is taken every `idle_period` seconds only.
    """

    def __init__(
        self,
        period: float,
        make: Callable[[], Sampler],
        sources: Iterable[str] = (),
        idle_period: float = IDLE_SECONDS,
    ) -> None:
        self._period, self._make = period, make
        self._usual_period, self._sources, self._idle_period = period, tuple(sources), idle_period
        self._is_idle = False  # set by the thread: the last sample has no job
        self._job_comes_until = 0.0  # ... but one was launched since
        self._in_force = _USUALLY
        self._jobs_over = False  # set by the thread: none of the jobs of the change in force is there any more
        # Not at once: a node that was just reached has jobs to start, and what measures takes long to load.
        self._due = self._next = time.monotonic() + period if period else _NEVER
        self._look = _FIRST_LOOK
        self._under_way = False
        self._ready: bytes | None = None
        self._wanted: threading.Semaphore | None = None  # made with the thread
        # In milliseconds since the boot: above every number that an earlier program of this boot can have used.
        self._encoder = SampleEncoder(boot_id(), first=int(time.monotonic() * 1000))

    def due(self) -> float:
        """Return the instant at which `take` should be called."""
        return self._due

    def take(self) -> bytes:
        """Start a sample, or return the one that is ready; empty while there is none."""
        now = time.monotonic()
        if now >= self._in_force.until or self._jobs_over:
            self.reset()
        if not self._under_way:
            self._begin(now)
            return b""
        data = self._ready
        if data is None:
            self._look = min(self._look * 2, _LAST_LOOK)
            self._due = now + self._look
            return b""
        self._under_way, self._ready = False, None
        self._due = self._next = max(self._next + self._pause(now), now) if self._period else _NEVER
        return data

    def job_comes(self) -> None:
        """Measure as often as jobs are measured: one is launched."""
        now = time.monotonic()
        self._job_comes_until = now + 2 * self._period
        if self._period and not self._under_way and self._next > now + self._period:
            self._due = self._next = now + self._period

    def _pause(self, now: float) -> float:
        """Return the seconds until the next sample; on an idle node that measures as usual, more."""
        is_idle = self._is_idle and self._in_force is _USUALLY and now > self._job_comes_until
        return max(self._period, self._idle_period) if is_idle else self._period

    def change(self, change: MeasureChange, jobs: Iterable[int]) -> None:
        """Measure otherwise from the next sample on, which is taken at once."""
        until = _NEVER if change.seconds is None else time.monotonic() + change.seconds
        self._in_force = _InForce(change, until, frozenset(jobs) if change.seconds is None else frozenset())
        self._jobs_over = False
        self._set_period(change.period or self._usual_period)

    def reset(self) -> None:
        """Measure as the settings say again."""
        self._in_force, self._jobs_over = _USUALLY, False
        self._set_period(self._usual_period)

    def _set_period(self, period: float) -> None:
        self._period = period
        if not self._under_way:
            self._due = self._next = time.monotonic() if period else _NEVER

    def dropped(self) -> None:
        """Note that the sample that was returned last was not sent."""
        self._encoder.forget_tables()

    def _begin(self, now: float) -> None:
        self._under_way, self._look = True, _FIRST_LOOK
        self._due = now + self._look
        if self._wanted is None:
            self._wanted = self._start_thread()
        self._wanted.release()

    def _start_thread(self) -> threading.Semaphore:
        """Start the thread that measures; return what it waits for."""
        import threading  # late, as logging: a node without a sample starts sooner without both

        wanted = threading.Semaphore(0)
        threading.Thread(target=self._work, args=(wanted,), name="oarlock-sampling", daemon=True).start()
        return wanted

    def _work(self, wanted_samples: threading.Semaphore) -> None:
        import logging

        sampler: Sampler | None = None
        switched: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        while True:
            wanted_samples.acquire()
            data = b""
            try:
                sampler = sampler or self._make()
                in_force = self._in_force
                wanted = (*self._sources, *in_force.change.sources), in_force.change.perf_events
                if wanted != (switched or ((), ())):
                    switch_sources(sampler, wanted, switched)
                    switched = wanted
                sample = sampler.sample(time.time())
                data = self._encoded(sample)
                self._is_idle = not sample.jobs
                if in_force.jobs and in_force is self._in_force:
                    self._jobs_over = not in_force.jobs & {int(key[2]) for key in sample.jobs}
            except Exception:
                logging.getLogger(__name__).exception("a sample failed")
            # One assignment, which needs no lock: the loop sees either nothing or the whole sample.
            self._ready = data

    def _encoded(self, sample: Sample) -> bytes:
        jobs = {int(reading.identity.job): reading.values for reading in sample.jobs.values()}
        return self._encoder.encode(sample.at, sample.node, jobs)


def switch_sources(
    sampler: Sampler,
    wanted: tuple[tuple[str, ...], tuple[str, ...]],
    before: tuple[tuple[str, ...], tuple[str, ...]] | None,
) -> None:
    """Switch a sampler from some sources and events of perf to others; what both have goes on as it is."""
    from oarlock.node.sources.assemble import SourceOptions, assemble, chosen_names

    old_words, old_events = before or ((), ())
    words, events = wanted
    old, new = chosen_names(old_words), chosen_names(words)
    for name in [name for name in old if name not in new]:
        sampler.switch_off(name)
    added = [name for name in new if name not in old or (name == "perf" and events != old_events)]
    options = SourceOptions()._replace(perf_events=events) if events else SourceOptions()
    sources = assemble(added, options)
    for job_source in sources.job:
        sampler.switch(job_source)
    for node_source in sources.node:
        sampler.switch_node(node_source)


def boot_id() -> str:
    """Read the id of this boot of the machine; empty where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def make_node_sampler(node: str) -> Sampler:
    """Build the sampler of an Oarlock node: its own jobs only, cheap sources. Imports late, to keep launches fast.

    Only what measures writes a log, so it begins here.
    """
    from oarlock.node import log_lines
    from oarlock.node.measure import layout
    from oarlock.node.measure.discovery import CgroupFinder
    from oarlock.node.measure.sampler import Sampler
    from oarlock.node.sources.assemble import assemble
    from oarlock.node.sources.files import mounted_hierarchies

    log_lines.to_stderr("%(message)s", level=30)
    sources = assemble()
    return Sampler(CgroupFinder([layout.layout_of_node(node)], mounted_hierarchies), sources.job, sources.node)
