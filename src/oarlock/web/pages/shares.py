"""A job that is shared: made, and shown to whoever has the link. Nothing of its script, its line or its output."""

from oarlock.model.errors import NotFound, OarlockError
from oarlock.model.job import FINAL, describe_exit
from oarlock.web.identity import CallerChannel
from oarlock.web.pages.compare import job_number
from oarlock.web.pages.job import report_of
from oarlock.web.pages.parts.plots import OF_JOBS, plots_of
from oarlock.web.pages.parts.registry import action, page
from oarlock.web.pages.parts.view import Answer, View
from oarlock.web.verbs.job.shares import open_share
from oarlock.web.views import JobView

_LONGEST = 100
_POINTS = 240


@action("/jobs/{id}/share")
async def share(view: View) -> Answer:
    """Make a link, and show it this once."""
    number = job_number(view.parts["id"])
    made = await view.change("shares.add", job=number, days=view.field("days", "7"))
    return view.page("share.html", number=number, made=made)


@page("/shared/{secret}")
async def shared(view: View) -> Answer:
    """Show what a link leads to, as its owner sees it but for script, line, directory and output."""
    link = await open_share(view.dispatcher.core, view.parts["secret"][:_LONGEST])
    account = None if link is None else await view.dispatcher.account_of(link.user)
    if link is None or account is None or not account.is_number(link.uid):
        raise NotFound("This link leads nowhere, or no longer.", hint="Ask whoever sent it for another.")
    owner = view.as_caller(view.dispatcher.policy.caller(account, CallerChannel.BROWSER))
    job: JobView = await owner.ask("jobs.show", id=link.job)
    report = await report_of(owner, job.id)
    return view.page(
        "shared.html",
        number=job.id, name=job.name, state=job.state, owner=job.owner, project=job.project, queue=job.queue,
        submitted=job.submitted, start=job.start, stop=job.stop, walltime=job.walltime,
        nodes=job.assigned_network_address, cores=len(job.assigned_resources),
        ending=describe_exit(job.exit_code) if job.state in FINAL and job.exit_code is not None else "",
        findings=report.report.findings if report else [], bars=report.report.bars if report else [],
        plots=await _plots(owner, job), until=link.expires,
    )  # fmt: skip


async def _plots(owner: View, job: JobView) -> list[object]:
    if not job.start:
        return []
    try:
        return list(plots_of(OF_JOBS, await owner.ask("jobs.series", id=job.id, points=_POINTS)))
    except OarlockError:
        return []
