"""oarmonitor: record what a running job does."""

from __future__ import annotations

import time

from oarlock.cli import output
from oarlock.cli.options import CommandOptions, job_number
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarmonitor",
    "Record what a running job does, until it ends (administrators).",
    usage=("-j JOB -f SECONDS",),
    about=(
        "CPU time, memory, I/O and processes of the job on each of its nodes, and what the site's own sensor adds "
        "(OARMONITOR_SENSOR_FILE), go to the table monitoring_samples. Ctrl-C ends the recording; what was recorded "
        "stays. `oarmonitor_graph_gen -j JOB` draws it."
    ),
)
OPTIONS.text("-j --job=JOB", "the job")
OPTIONS.text("-f --frequency=SECONDS", "the time between two records")
OPTIONS.json()
OPTIONS.end()
OPTIONS.example("oarmonitor -j 4242 -f 10", "record job 4242 every ten seconds")

LONGEST_PERIOD = 86400
_LOOK_SECONDS = 10.0  # between two looks at the recording; the server ends one that nobody looks at
_AWAY_SECONDS = 120.0  # for which a server that is being restarted is waited for
_AWAY = {"ServerDown", "NoAnswer", "Stopping"}


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Begin the recording, and look after it until the job ends or somebody presses Ctrl-C."""
    if parsed.words or parsed.text("job") is None or parsed.text("frequency") is None:
        raise RequestRefused(
            "oarmonitor takes a job and a number of seconds.", kind="BadOption", hint="oarmonitor -j JOB -f SECONDS"
        )
    number, period = job_number(parsed.text("job") or ""), _period(parsed.text("frequency") or "")
    status = client.monitor(number, period)
    _announce(status, out)
    try:
        status = _look_after(client, number, period, status, out)
    except KeyboardInterrupt:
        status = client.monitor(number, 0)
    if out.form:
        out.data(status)
    else:
        ended = "" if status["runs"] else f"Job {number} is {status['state']}. "
        out.line(f"{ended}{status['values']} values of {status['nodes']} nodes were recorded.")


def _period(word: str) -> int:
    if not word.isascii() or not word.isdecimal() or not 1 <= int(word[:9]) <= LONGEST_PERIOD:
        raise RequestRefused(
            f"`{word[:80]}` is not a number of seconds from 1 to {LONGEST_PERIOD}.",
            kind="BadOption",
            hint="For example, -f 10 records every ten seconds.",
        )
    return int(word[:9])


def _announce(status: Any, out: CommandOutput) -> None:
    if out.form:
        return
    out.line(f"Recording job {status['job_id']} every {status['period']} s; Ctrl-C ends it.")
    if status["period"] < status["sample_period"]:
        out.line(
            f"Nodes are measured every {status['sample_period']} s (SAMPLE_PERIOD): what is newer is the sensor's."
        )
    out.flush()


def _look_after(client: Client, number: int, period: int, status: Any, out: CommandOutput) -> Any:
    """Ask how the recording goes until it is over; what a restarted server forgot is begun again."""
    problems: dict[str, str] = {}
    seen = time.monotonic()
    while status["runs"]:
        time.sleep(min(_LOOK_SECONDS, max(1.0, period)))
        try:
            status = client.monitoring_status(number)
            if status["runs"] and not status["recording"]:
                status = client.monitor(number, period)
        except RequestRefused as refused:
            if refused.kind not in _AWAY or time.monotonic() - seen > _AWAY_SECONDS:
                raise
            continue
        seen = time.monotonic()
        for node, says in status["problems"].items():
            if problems.get(node) != says:
                out.note(f"{node}: {says}")
        problems = status["problems"]
    return status
