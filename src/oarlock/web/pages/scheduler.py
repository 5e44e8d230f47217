"""The scheduler's page: queues, why jobs wait, the last passes, and how good predicted starts were."""

from oarlock.insight.drawing.time_plot import PlotLine, TimePlot
from oarlock.job.reactor.passes import PassRecord
from oarlock.measure.collect.questions import SchedulerFiguresView
from oarlock.model.errors import OarlockError
from oarlock.web.pages.parts.registry import page
from oarlock.web.pages.parts.view import Answer, View
from oarlock.web.verbs.cluster.scheduler import SchedulerResponse

_SHOWN_PASSES = 12


@page("/scheduler", nav="Scheduler", place=45)
async def scheduler(view: View) -> Answer:
    """Show the scheduler."""
    shown: SchedulerResponse = await view.ask("scheduler.show")
    figures, no_figures = await _ask_exporter(view)
    return view.page(
        "scheduler.html",
        scheduler=shown,
        passes=shown.passes[: -_SHOWN_PASSES - 1 : -1],
        durations=_milliseconds(shown.passes),
        figures=figures,
        no_figures=no_figures,
        cores=None if figures is None else _plot_cores(figures),
        judged=sum(group.jobs for group in shown.predictions),
    )


async def _ask_exporter(view: View) -> tuple[SchedulerFiguresView | None, str]:
    """Return what slurm-exporter says; or the sentence that says why it cannot be shown, empty where there is none."""
    try:
        return await view.ask_if_allowed("scheduler.exporter"), ""
    except OarlockError as refused:
        return None, str(refused)


def _plot_cores(figures: SchedulerFiguresView) -> TimePlot | None:
    """Return the cores of the last day; None if nothing was scraped."""
    lines = [PlotLine("allocated", figures.allocated), PlotLine("all", figures.total)]
    if not figures.times:
        return None
    return TimePlot(id="cores", title="Cores, last day", unit="cores", times=figures.times, lines=lines)


def _milliseconds(passes: list[PassRecord]) -> tuple[float, float] | None:
    """Return how long passes took: the median and the longest, in milliseconds."""
    seconds = sorted(record.seconds for record in passes)
    return (1000 * seconds[len(seconds) // 2], 1000 * seconds[-1]) if seconds else None
