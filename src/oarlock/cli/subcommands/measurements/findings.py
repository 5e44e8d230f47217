"""oarlock findings: what the measurements of jobs mean, and what to do about it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

from oarlock.cli.layout.findings import finding_lines
from oarlock.cli.output import show_text
from oarlock.cli.subcommands.measurements.meter import since
from oarlock.client import Client

if TYPE_CHECKING:
    import argparse

_ABOUT = (
    "Show what was found about jobs: cores, memory, GPUs or time that were asked for and not used, and other trouble, "
    "each with advice. Without a job: about those that ended since then, or run. Nothing is stored and nobody is told, "
    "so that an administrator can try rules (FINDINGS_FILE) on the jobs of last week."
)


class _Findings(Client):
    """The client, with the verbs of findings."""

    def of_job(self, job: int, cluster: str | None) -> dict[str, Any]:
        """Return the findings of one job."""
        response: dict[str, Any] = self._get(f"/jobs/{job}/findings", cluster=cluster)
        return response

    def of_jobs(self, **query: object) -> dict[str, Any]:
        """Return the findings of many jobs."""
        response: dict[str, Any] = self._get("/findings", **query)
        return response

    def rules(self) -> dict[str, Any]:
        """Return the rules in force."""
        response: dict[str, Any] = self._get("/findings/rules")
        return response


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to those of `oarlock`."""
    parser = commands.add_parser("findings", help="show what was found about jobs, with advice", description=_ABOUT)
    parser.add_argument("job", metavar="JOB", type=int, nargs="?", help="the number of a job")
    parser.add_argument("--cluster", metavar="NAME",
                        help="a job of that cluster, whose agents send here, by the number it has there")  # fmt: skip
    parser.add_argument("--since", metavar="WHEN", default="7d",
                        help="from then on: 12h, 7d, 4w, or YYYY-MM-DD [hh:mm:ss]; the default is 7d")  # fmt: skip
    parser.add_argument("-u", "--user", metavar="NAME", help="of this user (administrators)")
    parser.add_argument("--project", metavar="NAME", help="of this project")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--rules", action="store_true", help="show the rules that are in force")
    which.add_argument("--facts", action="store_true", help="show the facts that a rule may ask about")
    parser.add_argument("-J", "--json", action="store_true", help="as JSON, for programs")
    parser.add_argument("--server", metavar="ADDRESS", help="the server's socket, or http://NAME:PORT")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Print findings, rules or facts."""
    client = _Findings(arguments.server)
    if arguments.rules or arguments.facts:
        view = client.rules()
        laid_out = _rule_lines(view) if arguments.rules else _fact_lines(view)
    elif arguments.job is not None:
        view = client.of_job(arguments.job, arguments.cluster)
        laid_out = job_lines(view)
    else:
        start = since(arguments.since, now=time.time())
        view = client.of_jobs(since=start, user=arguments.user, project=arguments.project)
        laid_out = _list_lines(view)
    if arguments.json:
        print(json.dumps(view))
        return
    for line in laid_out:
        show_text(line)


def job_lines(view: dict[str, Any]) -> list[str]:
    """Lay out the findings of one job."""
    name = f" ({view['name']})" if view["name"] else ""
    head = f"Job {view['label'] or view['job_id']}{name} of {view['user']}"
    if not view["facts"] and not view["findings"]:
        return [f"{head}: nothing was measured of it."]
    return [head, *finding_lines(view["findings"])] if view["findings"] else [f"{head}: nothing was found."]


def _list_lines(view: dict[str, Any]) -> list[str]:
    lines = [f"{len(view['jobs'])} of {'your ' if view['own'] else ''}{view['judged']} jobs have findings"]
    for job in view["jobs"]:
        name = f" ({job['name']})" if job["name"] else ""
        lines += [f"Job {job['label'] or job['job_id']}{name} of {job['user']}", *finding_lines(job["findings"])]
    if view["more"]:
        lines.append("There are older ones that were not looked at; name a user, a project or a later --since.")
    return lines


def _rule_lines(view: dict[str, Any]) -> list[str]:
    head = f"Oarlock's rules, with those of {view['file']}" if view["file"] else "Oarlock's rules"
    return [head, *(f"  {rule['id'].ljust(20)} {rule['text']}" for rule in view["rules"])]


def _fact_lines(view: dict[str, Any]) -> list[str]:
    return [f"{fact['name'].ljust(26)} {fact['kind'].ljust(8)} {fact['says']}" for fact in view["facts"]]
