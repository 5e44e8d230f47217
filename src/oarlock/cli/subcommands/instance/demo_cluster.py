"""The part of the demonstration that goes on: jobs come and go until Ctrl-C, and the portal shows what they do."""

import asyncio
import itertools
import os
import socket
import webbrowser
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oarlock.cli.subcommands.site.login import make_link
from oarlock.config import Config
from oarlock.model.job import FINAL, JobState, Reservation
from oarlock.server.core import ServerCore
from oarlock.settings.kinds import NodeTransport
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import jobs

_MOST_LIVE = 9  # jobs at once: enough that some of them wait for others
_PAUSE_SECONDS = 4.0
_ENDING_SECONDS = 20.0
# A demonstration lasts minutes: its rules find after half a minute what Oarlock's own want to see for five or more.
_FINDINGS = """\
[[finding]]
id = "cpu.zero"
bad = "cpu_idle_seconds >= 20 AND gpus = 0"
least_seconds = 20

[[finding]]
id = "cpu.low"
least_seconds = 20

[[finding]]
id = "cpu.serial"
least_seconds = 20

[[finding]]
id = "cpu.oversubscribed"
least_seconds = 20

[[finding]]
id = "time.short"
least_seconds = 20
"""
_ONE_BUSY = "timeout {seconds} sh -c 'while :; do :; done'; true"
_HALF_BUSY = (
    "python3 -S -c 'import time; begin = time.monotonic()\n"
    "while time.monotonic() - begin < {seconds}:\n"
    "    while time.process_time() < (time.monotonic() - begin) / 2: pass\n"
    "    time.sleep(.02)'"
)


@dataclass(slots=True)
class DemoJob:
    """One kind of job of the cluster that goes on: what it runs, and what it asks for."""

    name: str
    project: str
    command: str
    request: str = "/core=1,walltime=0:10:0"
    fields: dict[str, Any] = field(default_factory=dict)


def kinds_of_jobs(now: int) -> list[DemoJob]:
    """Return the kinds of jobs: well-behaved ones, some that waste, one that waits long, one that makes room."""
    reserved = {"reservation": Reservation.TO_SCHEDULE, "start": now + 900}
    return [
        DemoJob("relax", "proteins", _HALF_BUSY.format(seconds=60)),
        DemoJob("wait-for-data", "climate", "sleep 80", "/network_address=1,walltime=0:10:0"),
        DemoJob("assembly", "genomes", _ONE_BUSY.format(seconds=50), "/network_address=1,walltime=0:10:0"),
        DemoJob("scan", "proteins", "sleep 100", fields={"queue": "besteffort", "types": ("besteffort", "idempotent")}),
        DemoJob("course", "teaching", "echo ready", "/network_address=1,walltime=0:20:0", reserved),
        DemoJob("post", "climate", _HALF_BUSY.format(seconds=40), "/core=1,walltime=4:0:0"),
        DemoJob("wide", "climate", _HALF_BUSY.format(seconds=30), "/network_address=4,walltime=0:2:0"),
        DemoJob("stuck", "genomes", "sleep 600", "/core=2,walltime=0:0:40"),
        DemoJob("broken", "teaching", "echo 'No such input file.' >&2; exit 2"),
    ]  # fmt: skip


def settings(state: Path) -> Config:
    """Return the settings of a demonstration: measured every two seconds, with the watts of usual nodes."""
    # One that serves people may have the usual port on this machine.
    return Config(
        cluster_name="demo", node_transport=NodeTransport.LOCAL, watch_frequency=1, jobdel_softwalltime=2,
        server_port=_free_port(), sample_period=2, energy_idle_watts=80, energy_busy_watts=250,
        findings_file=state.parent / "findings.toml",
    )  # fmt: skip


def write_rules(state: Path) -> None:
    """Write the rules of findings that the settings name."""
    (state.parent / "findings.toml").write_text(_FINDINGS)


def _free_port() -> int:
    for port in (Config().server_port, 0):
        try:
            with socket.create_server((Config().server_hostname, port)) as listening:
                return int(listening.getsockname()[1])
        except OSError:
            continue
    return 0  # the server will say what is wrong with its address


def show_the_way(server_socket: Path, say: Callable[[str], None]) -> None:
    """Print the link that signs in to the portal, and open it where there is a browser to open it in."""
    link = str(make_link(str(server_socket))["link"])
    say(f"The portal: {link}")
    say("It signs you in once, within a minute; another comes from:")
    say(f"    OARLOCK_SERVER={server_socket} oarlock login")
    has_screen = bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if has_screen and os.geteuid() != 0 and os.isatty(1):  # browsers refuse to run as root
        webbrowser.open(link)


async def keep_alive(
    core: ServerCore, over: asyncio.Event, submit: Callable[[DemoJob], Awaitable[None]], now: int
) -> None:
    """Submit a job every few seconds while there are few, until it is over."""
    for kind in _endless(now):
        if over.is_set():
            return
        while not over.is_set() and len(await core.read(live_jobs)) >= _MOST_LIVE:
            await _pause(over)
        if not over.is_set():
            await submit(kind)
            await _pause(over)


def _endless(now: int) -> Iterator[DemoJob]:
    first = kinds_of_jobs(now)
    yield from first
    # One reservation is enough: the cluster is small.
    yield from itertools.cycle([kind for kind in first if "start" not in kind.fields])


async def _pause(over: asyncio.Event) -> None:
    try:
        await asyncio.wait_for(over.wait(), _PAUSE_SECONDS)
    except TimeoutError:
        return


def live_jobs(tx: Tx) -> list[int]:
    """Return the jobs that are not over."""
    return [job.id for job in jobs.in_states(tx, [state for state in JobState if state not in FINAL])]


async def end_jobs(core: ServerCore, by: str, say: Callable[[str], None]) -> None:
    """End what still runs or waits: nobody would be there to see its end."""
    end = core.clock.steady() + _ENDING_SECONDS
    live = await core.read(live_jobs)
    if live:
        say(f"Ending {len(live)} jobs.")
        await core.kill(live, by=by)
    while live and core.clock.steady() < end:
        await asyncio.sleep(0.1)
        live = await core.read(live_jobs)
    if live:
        say(f"Jobs {', '.join(map(str, live))} did not end in time; `oarlock node clean` ends what is left of them.")
