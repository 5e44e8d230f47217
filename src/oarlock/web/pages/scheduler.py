"""The scheduler's page: queues, why jobs wait, the last passes, and how good predicted starts were."""

from oarlock.job.reactor.pass_log import PassRecord
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, View
from oarlock.web.verbs.cluster.scheduler import SchedulerResponse

_SHOWN_PASSES = 12


@page("/scheduler", nav="Scheduler", place=45)
async def scheduler(view: View) -> Answer:
    """Show the scheduler."""
    shown: SchedulerResponse = await view.ask("scheduler.show")
    return view.page(
        "scheduler.html",
        scheduler=shown,
        passes=shown.passes[: -_SHOWN_PASSES - 1 : -1],
        durations=_milliseconds(shown.passes),
        judged=sum(group.jobs for group in shown.predictions),
    )


def _milliseconds(passes: list[PassRecord]) -> tuple[float, float] | None:
    """Return how long passes took: the median and the longest, in milliseconds."""
    seconds = sorted(record.seconds for record in passes)
    return (1000 * seconds[len(seconds) // 2], 1000 * seconds[-1]) if seconds else None
