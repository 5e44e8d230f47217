"""Suspends and resumes jobs on all their nodes, with the site's scripts on the server."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from oarlock.config import Config
from oarlock.job.run.effects import Resume, Suspend
from oarlock.job.run.reports import IncomingReport, JobResumed, JobSuspended
from oarlock.server.effects import programs
from oarlock.server.nodes.fleet import NodeVerbs

Each = Callable[[Sequence[str], Callable[[NodeVerbs], Awaitable[None]]], Awaitable[dict[str, str]]]
"""Sends a request to several nodes at once; returns the reasons of those that failed."""


class PauseCommands:
    """Suspends and resumes jobs. A request repeated while it is under way is not done twice."""

    def __init__(self, config: Config, each: Each, queue_report: Callable[[IncomingReport], None]) -> None:
        self._config, self._each, self._queue_report = config, each, queue_report
        self._under_way: set[Suspend | Resume] = set()

    async def suspend(self, effect: Suspend) -> None:
        """Suspend a job, then run the site's script; the failure of the script is reported without a node."""
        if effect in self._under_way:
            return
        self._under_way.add(effect)
        try:
            failed = await self._each(effect.nodes, lambda node: node.suspend(effect.job, effect.attempt))
            says = "; ".join(failed.values()) or await self._script(
                self._config.just_after_suspend_exec_file, effect.job
            )
        finally:
            self._under_way.discard(effect)
        self._queue_report(JobSuspended(effect.job, effect.attempt, tuple(failed), says))

    async def resume(self, effect: Resume) -> None:
        """Run the site's script, then resume the job, unless the script failed."""
        if effect in self._under_way:
            return
        self._under_way.add(effect)
        failed: dict[str, str] = {}
        try:
            says = await self._script(self._config.just_before_resume_exec_file, effect.job)
            if not says:
                failed = await self._each(effect.nodes, lambda node: node.resume(effect.job, effect.attempt))
        finally:
            self._under_way.discard(effect)
        self._queue_report(JobResumed(effect.job, effect.attempt, tuple(failed), says or "; ".join(failed.values())))

    async def _script(self, path: Path | None, job: int) -> str:
        """Run a script of the site with the number of a job; return what went wrong."""
        if path is None:
            return ""
        result = await programs.run([str(path), str(job)], seconds=self._config.suspend_resume_script_timeout)
        return "" if result.status == 0 else result.says
