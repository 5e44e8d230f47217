"""oarlock demo: a cluster of four pretended nodes on this machine, and jobs of every kind on it."""

import asyncio
import contextlib
import fcntl
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from oarlock.cli.subcommands.instance import demo_cluster, demo_shell
from oarlock.lang import request as requests
from oarlock.model.errors import OarlockError
from oarlock.model.job import FINAL, Job, JobState, Reservation
from oarlock.model.resource import Value
from oarlock.node import commands
from oarlock.server import instance, serve
from oarlock.server.core import ServerCore
from oarlock.server.http.listen import SOCKET, serve_http
from oarlock.server.process.clock import RealClock
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import events, properties, resources
from oarlock.store.queries.job import jobs, new_jobs
from oarlock.store.queries.usage import accounting

NODES = ("node1", "node2", "node3", "node4")
_CORES = 2
_PATIENCE = 120.0
_GUEST = "oarlock-demo"
_LOCK = Path("/run/oarlock-demo.lock")
_REMOVAL_SECONDS = 10.0
_TWICE = "if [ -e left ]; then echo again; else touch left; sleep 600; fi"


class DemoRefused(OarlockError):
    """A demonstration that cannot be given here."""


class DemoFailed(OarlockError):
    """A job of the demonstration that did not end as it should."""


@dataclass(slots=True)
class DemoStep:
    """One kind of job: what it shows, what it runs, how it has to end, and what else has to be true then."""

    shows: str
    command: str
    ends: JobState = JobState.TERMINATED
    exit_code: int | None = 0
    request: str = "/core=1,walltime=0:5:0"
    fields: dict[str, Any] = field(default_factory=dict)
    count: int = 1
    events: tuple[str, ...] = ()
    prints: str | None = None
    ids: list[int] = field(default_factory=list)


class DemoPlace(NamedTuple):
    """Where the demonstration is: its socket, the directory of its jobs, and who runs them."""

    socket: Path
    home: Path
    user: str


def run(*, tour: bool, user: str | None = None, say: Callable[[str], None]) -> None:
    """Run the demonstration; a `tour` ends by itself and raises `DemoFailed` if anything was not as it should be."""
    with lent_account(user) as who, tempfile.TemporaryDirectory(prefix="oarlock-demo-") as ground:
        Path(ground).chmod(0o755)
        home = Path(ground) / "home"
        home.mkdir()
        home.chmod(0o777)  # the jobs of the demonstration write here, whoever runs them
        asyncio.run(_demo(Path(ground) / "state", home, who, tour=tour, say=say))


@contextlib.contextmanager
def lent_account(user: str | None) -> Iterator[str]:
    """Choose who runs the jobs: the plain user who asks; for root an account of our own, for as long as it takes."""
    if user is not None and not _exists(user):
        raise DemoRefused(
            f"There is no account `{user}` on this machine, so it cannot run jobs.", hint="Name another with --user."
        )
    who = user or account()
    if who not in (None, _GUEST) or os.geteuid() != 0:
        yield who or _GUEST
        return
    with exclusive(_LOCK):
        if who is not None:
            yield who  # an earlier demonstration left it
            return
        try:
            commands.output(["useradd", "--create-home", "--shell", "/bin/sh", _GUEST])
        except commands.CommandFailed as failure:
            raise DemoRefused(
                f"root runs no jobs, and no account for the demonstration can be made: {failure}.",
                hint="Run `oarlock demo` as a plain user, or name an account with --user.",
            ) from failure
        try:
            yield _GUEST
        finally:
            _remove_account()


def _exists(user: str) -> bool:
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Refuse a second demonstration of this account: jobs of one number would be in one cgroup."""
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "rb+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise DemoRefused(
                f"A demonstration of the account {_GUEST} runs already on this machine.",
                hint="End that one first, or name another account with --user.",
            ) from taken
        yield


def _remove_account() -> None:
    """Remove the account, once the last processes of its jobs are gone."""
    end = time.monotonic() + _REMOVAL_SECONDS
    while True:
        try:
            commands.output(["userdel", "--remove", _GUEST])
        except commands.CommandFailed as failure:
            if time.monotonic() > end:
                raise DemoFailed(
                    f"The account {_GUEST} could not be removed: {failure}.",
                    hint=f"`userdel --remove {_GUEST}` removes it once that process has ended.",
                ) from failure
            time.sleep(0.2)
        else:
            return


def account() -> str | None:
    """Return who could run the jobs: whoever asks; for root the account that an earlier demonstration left, or None.

    Never that of a person: jobs of the demonstration run in its name and write into its directory.
    """
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    return next((account.pw_name for account in pwd.getpwall() if account.pw_name == _GUEST), None)


async def _demo(state: Path, home: Path, user: str, *, tour: bool, say: Callable[[str], None]) -> None:
    config = demo_cluster.settings(state)
    demo_cluster.write_rules(state)
    with instance.open_instance(state, config) as database:
        database.write(_add_nodes)
        core = ServerCore(state, config, database, RealClock(), instance.attempt_key(database))
        say(f"An instance in {state}: nodes {', '.join(NODES)} of {_CORES} cores each; jobs run as {user}.")
        serving = asyncio.create_task(serve.run(core, serve_http))
        try:
            await introduce(_play(core, home, user, say), tour=tour, say=say)
            if not tour:
                await _go_on(core, DemoPlace(state / SOCKET, home, user), say)
            elif demo_shell.has_terminal():
                await asyncio.to_thread(demo_shell.show_shell, _shell_place(state / SOCKET, home, user), say)
        finally:
            core.stopping.set()
            await serving
            await core.close()
    if tour:
        say("To look around yourself: `oarlock demo` keeps such a cluster alive and prints the way into its portal.")


async def introduce(play: Awaitable[None], *, tour: bool, say: Callable[[str], None]) -> None:
    """Show what jobs do. On a busy machine one may be late: that ends a tour, and not a cluster to look around in."""
    try:
        await play
    except DemoFailed as failure:
        if tour:
            raise
        say(f"{failure} The cluster stays for you to look around.")


def _shell_place(socket: Path, home: Path, user: str) -> demo_shell.ShellPlace:
    return demo_shell.ShellPlace(socket, user, home, NODES[:2])


async def _go_on(core: ServerCore, place: DemoPlace, say: Callable[[str], None]) -> None:
    """Keep the cluster alive until Ctrl-C: the portal for a browser, a shell for a terminal."""
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)

    async def submit(job: demo_cluster.DemoJob) -> None:
        fields = {"name": job.name, "project": job.project, **job.fields}
        await _submit(core, DemoStep(job.name, job.command, request=job.request, fields=fields), place.home, place.user)

    coming = asyncio.create_task(demo_cluster.keep_alive(core, over, submit, int(core.clock.now())))
    try:
        await asyncio.to_thread(demo_cluster.show_the_way, place.socket, say)
        if demo_shell.has_terminal():
            shell = _shell_place(place.socket, place.home, place.user)
            await asyncio.to_thread(demo_shell.give_shell, shell, say)
        say(f"The server goes on until you press Ctrl-C; ask it with OARLOCK_SERVER={place.socket} oarstat.")
        stopping = asyncio.create_task(core.stopping.wait())
        await asyncio.wait({asyncio.create_task(over.wait()), stopping}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        over.set()
        await coming
        await demo_cluster.end_jobs(core, pwd.getpwuid(os.geteuid()).pw_name, say)


def _add_nodes(tx: Tx) -> None:
    properties.add(tx, "core", int)
    places = [(name, core) for name in NODES for core in range(_CORES)]
    rows: list[dict[str, Value]] = [
        {"network_address": name, "cpuset": core, "core": n} for n, (name, core) in enumerate(places)
    ]
    resources.add(tx, rows, at=int(time.time()))


def acts(now: int) -> list[DemoStep]:
    """Return the jobs; the first has to run before the others, and the reservation needs free resources."""
    return [
        DemoStep(
            "best effort: makes room for others, and its copy runs later",
            _TWICE,
            JobState.ERROR,
            None,
            request="/network_address=4,walltime=0:5:0",
            fields={"queue": "besteffort", "types": ("besteffort", "idempotent")},
            events=("BESTEFFORT_KILL", "RESUBMIT_JOB_AUTOMATICALLY"),
        ),
        DemoStep("a batch job", "echo hello", prints="hello\n"),
        DemoStep(
            "reserved for a date",
            "echo on time",
            request="/core=1,walltime=0:1:0",
            fields={"reservation": Reservation.TO_SCHEDULE, "start": now + 12},
            prints="on time\n",
        ),
        DemoStep("an array of six", "echo member $OAR_ARRAY_INDEX", count=6),
        DemoStep("waits for the batch job", "echo after", prints="after\n"),
        DemoStep("fails", "exit 3", exit_code=3 << 8),
        DemoStep("stays too long", "sleep 600", JobState.ERROR, None, "/core=1,walltime=0:0:3", events=("WALLTIME",)),
        DemoStep(
            "uses two nodes",
            "sort -u $OAR_NODE_FILE | wc -l",
            request="/network_address=2,walltime=0:5:0",
            prints="2\n",
        ),
    ]


async def _play(core: ServerCore, home: Path, user: str, say: Callable[[str], None]) -> None:
    play = acts(int(core.clock.now()))
    first, *others = play
    await _submit(core, first, home, user)
    await _until(core, lambda: _all_in(core, first.ids, {JobState.RUNNING}), "the best-effort job to run")
    for act in others:
        if act.shows == "waits for the batch job":
            act.fields["after"] = tuple(play[1].ids)
        await _submit(core, act, home, user)
    await _until(core, lambda: _none_left(core), "all jobs to end")
    for line in await core.read(lambda tx: _table(tx, play)):
        say(line)
    wrong = await core.read(lambda tx: [problem for act in play for problem in _wrong(tx, act, home)] + _unbalanced(tx))
    if wrong:
        raise DemoFailed("The demonstration did not go as it should: " + "; ".join(wrong) + ".")
    say("Every job ended as it should, and the account agrees.")


async def _submit(core: ServerCore, act: DemoStep, home: Path, user: str) -> None:
    fields = dict(act.fields)
    after = fields.pop("after", ())
    given = {"queue": "default", "project": "demo", "name": "demo", **fields}
    now = int(core.clock.now())
    job = Job(id=0, state=JobState.WAITING, user=user, command=act.command, directory=str(home), submitted=now, **given)
    new = [
        new_jobs.NewJob(replace(job, array_index=n), requests.parse([act.request]), after)
        for n in range(1, act.count + 1)
    ]
    act.ids = [job.id for job in await core.write(lambda tx: new_jobs.add(tx, new))]
    core.wake_scheduler()


async def _until(core: ServerCore, done: Callable[[], Awaitable[bool]], what: str) -> None:
    end = core.clock.steady() + _PATIENCE
    while not await done():
        if core.clock.steady() > end:
            raise DemoFailed(f"Waited {_PATIENCE:.0f} s for {what}, in vain.")
        await asyncio.sleep(0.05)


async def _all_in(core: ServerCore, ids: Sequence[int], states: set[JobState]) -> bool:
    return {job.state for job in await core.read(lambda tx: jobs.get_many(tx, ids))} <= states


async def _none_left(core: ServerCore) -> bool:
    return set(await core.read(jobs.count)) <= FINAL


def _table(tx: Tx, play: Sequence[DemoStep]) -> list[str]:
    """Show what became of each job."""
    shown = {number: act.shows for act in play for number in act.ids}
    lines = [f"{'job':>4}  {'state':<11} {'exit':>5} {'seconds':>7}  what it shows"]
    for job in jobs.in_states(tx, FINAL):
        status = "" if job.exit_code is None else str(job.exit_code >> 8)
        what = shown.get(job.id, f"the copy of job {job.resubmit_of}")
        lines.append(f"{job.id:>4}  {job.state:<11} {status:>5} {job.stop - job.start:>7}  {what}")
    return lines


def _wrong(tx: Tx, act: DemoStep, home: Path) -> list[str]:
    """Compare how the jobs of an act ended with how they should have: database, events, output files."""
    problems = []
    noted = events.of_jobs(tx, act.ids)
    for job in jobs.get_many(tx, act.ids):
        if (job.state, job.exit_code) != (act.ends, act.exit_code):
            problems.append(f"job {job.id} ({act.shows}) is {job.state} with {job.exit_code}")
        seen = {str(row.event.type) for row in noted if row.event.job == job.id}
        problems += [f"job {job.id} ({act.shows}) has no event {name}" for name in act.events if name not in seen]
        output = home / f"OAR.demo.{job.id}.stdout"
        if act.prints is not None and (not output.exists() or output.read_text() != act.prints):
            problems.append(f"job {job.id} ({act.shows}) did not print {act.prints!r}")
        start = act.fields.get("start")
        if start is not None and job.start != start:
            problems.append(f"job {job.id} was reserved for {start} and started at {job.start}")
    return problems


def _unbalanced(tx: Tx) -> list[str]:
    """Compare the account with the jobs themselves."""
    ended = jobs.in_states(tx, FINAL)
    given = jobs.resources_of(tx, [job.id for job in ended])
    lived = sum((job.stop - job.start) * len(given.get(job.id, ())) for job in ended)
    used = sum(row.consumption for row in accounting.listed(tx) if row.kind == "USED")
    copies = [job for job in ended if job.resubmit_of]
    wrong = [] if used == lived else [f"the account says {used} resource-seconds, the jobs {lived}"]
    if [job.state for job in copies] != [JobState.TERMINATED]:
        wrong.append(f"the best-effort job has {len(copies)} copies that ended well")
    return wrong
