"""The site's own schedulers: programs that plan a queue. They run beside the passes, which use their last answers.

A pass never waits for a program. After each one the programs of queues where something changed are run, one at a time
for each queue; an answer is checked against what the program was shown, and again, job by job, in every pass that uses
it. A queue whose program fails, lies or takes too long is planned by the built-in policy until it answers again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from oarlock.config import Config
from oarlock.model.snapshot import BUILT_IN_POLICY, PROGRAM_NAME, SitePlan
from oarlock.plan.site_view import SchedulerAnswer, SiteView, WrongAnswer
from oarlock.server.effects import programs
from oarlock.server.planning.client import PlanningClient
from oarlock.server.process.clock import Clock

log = logging.getLogger(__name__)

_LONGEST = 60.0  # seconds after which a program is asked again though nothing changed: it may look at the clock
_RETRY = 60.0  # seconds after a failure
_LONGEST_MESSAGE = 500


@dataclass(slots=True)
class _QueueProgram:
    """The program of a queue: what it was last shown, and how it fared."""

    program: str
    changed: bool = True
    runs: bool = False
    digest: bytes = b""
    asked_at: float = 0.0  # monotonic
    retry_at: float = 0.0
    failure: str = ""


class SchedulerFailed(Exception):
    """A program that gave no answer, or one that cannot be used; a sentence for administrators."""


class SiteSchedulers:
    """Runs the programs and keeps their plans where passes find them (`PlanningClient.site_plans`).

    `wake` requests a pass; `report` stores the sentence about a failure.
    """

    def __init__(
        self,
        planning: PlanningClient,
        config: Config,
        clock: Clock,
        *,
        wake: Callable[[], None],
        report: Callable[[str], Awaitable[None]],
    ) -> None:
        self._planning, self._config, self._clock = planning, config, clock
        self._wake, self._report = wake, report
        self._queues: dict[str, _QueueProgram] = {}
        self._changed = asyncio.Event()

    def follow(self, queues: Sequence[tuple[str, str]]) -> None:
        """Note that something may have changed; `queues` are those that have a program, with its name."""
        if not queues and not self._queues:
            return
        present = dict(queues)
        for name in self._queues.keys() - present.keys():
            del self._queues[name]
            self._planning.site_plans.pop(name, None)
        for name, program in present.items():
            queue = self._queues.get(name)
            if queue is None or queue.program != program:
                self._queues[name] = _QueueProgram(program)
                self._planning.site_plans[name] = SitePlan(program, answered=False)
            else:
                queue.changed = True
        self._changed.set()

    @property
    def is_asking(self) -> bool:
        """Whether a program runs, or is about to."""
        return any(queue.runs or queue.changed for queue in self._queues.values())

    async def run(self) -> None:
        """Ask programs as often as something changes, until cancelled; those that run are ended then."""
        async with asyncio.TaskGroup() as group:
            while True:
                self._changed.clear()
                for name, queue in self._queues.items():
                    if queue.changed and not queue.runs and self._clock.steady() >= queue.retry_at:
                        queue.changed, queue.runs = False, True
                        group.create_task(self._ask(name, queue))
                await self._changed.wait()

    async def _ask(self, name: str, queue: _QueueProgram) -> None:
        """Ask the program of a queue for a plan; whatever goes wrong concerns this queue alone."""
        try:
            await self._ask_if_changed(name, queue)
        except SchedulerFailed as failed:
            await self._fail(name, queue, str(failed))
        except Exception as error:
            log.exception("a site's scheduler could not be asked", extra={"queue": name})
            await self._fail(name, queue, f"it could not be asked: {error}")
        finally:
            queue.runs = False
            if queue.changed:
                self._changed.set()

    async def _ask_if_changed(self, name: str, queue: _QueueProgram) -> None:
        steady = self._clock.steady()
        last_digest = queue.digest if steady < queue.asked_at + _LONGEST else b""
        digest, view = await self._planning.site_view(int(self._clock.now()), name, unless=last_digest)
        if view is None:
            return
        path = _path(self._config.scheduler_program_dir, queue.program)
        queue.asked_at = steady
        site_plan = await self._answer(path, queue.program, view)
        if self._queues.get(name) is not queue:
            return  # the queue has another policy by now
        before = self._planning.site_plans.get(name)
        queue.digest, queue.retry_at, queue.failure = digest, 0.0, ""
        self._planning.site_plans[name] = site_plan
        if site_plan != before:
            self._wake()

    async def _answer(self, path: Path, program: str, view: SiteView) -> SitePlan:
        """Run a program on a view; return its plan, or raise `SchedulerFailed`."""
        if not view.has_jobs:
            return SitePlan(program)
        shown = await asyncio.to_thread(lambda: msgspec.json.encode(view.input()))
        output = await programs.run_fed([str(path)], shown, seconds=self._config.scheduler_timeout)
        if output.status is None or output.status == -1:
            raise SchedulerFailed(output.err)
        complaint = output.err.strip()[-_LONGEST_MESSAGE:]
        if output.status:
            raise SchedulerFailed(f"{path} ended with {programs.described(output.status)}: {complaint or 'no message'}")
        if complaint:
            log.info("a site's scheduler says", extra={"program": program, "says": complaint})
        return await asyncio.to_thread(_check, path, program, view, output.out)

    async def _fail(self, name: str, queue: _QueueProgram, why: str) -> None:
        """Leave a queue to the built-in policy, and store the reason unless it is the last one again."""
        if self._queues.get(name) is not queue:
            return
        self._planning.site_plans.pop(name, None)
        queue.digest, queue.retry_at = b"", self._clock.steady() + _RETRY
        if queue.failure != why:
            queue.failure = why
            log.error("a site's scheduler failed", extra={"queue": name, "program": queue.program, "why": why})
            await self._report(f"queue {name}: {why}; until its scheduler answers, {BUILT_IN_POLICY} plans its jobs")
        self._wake()


def _path(folder: Path | None, program: str) -> Path:
    if folder is None:
        raise SchedulerFailed("SCHEDULER_PROGRAM_DIR is not set")
    if not PROGRAM_NAME.fullmatch(program):
        raise SchedulerFailed(f"`{program}` is not the name of a program in {folder}")
    return folder / program


def _check(path: Path, program: str, view: SiteView, printed: str) -> SitePlan:
    try:
        return view.check(program, msgspec.json.decode(printed, type=SchedulerAnswer))
    except msgspec.DecodeError as error:
        raise SchedulerFailed(f"{path} printed what is not an answer: {error}") from error
    except WrongAnswer as wrong:
        raise SchedulerFailed(f"{path} gave a place that cannot be: {wrong}") from wrong
