"""Look up the owners of jobs on a cluster of Slurm or OAR: in a thread of its own, once a job, never for a sample."""

import logging
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from oarlock.measure.batch import JobFacts
from oarlock.measure.options import AgentOptions
from oarlock.model.errors import ConfigRefused
from oarlock.node.commands import CommandFailed, output
from oarlock.node.measure.layout import SHAPES

log = logging.getLogger(__name__)

Ask = Callable[[Sequence[str]], Mapping[str, JobFacts]]

HOW = ("slurm", "slurmdbd", "oar")
PAUSE_SECONDS = 0.5
"""From one question to the next, so that jobs that start together are asked for together."""
AGAIN_SECONDS = 60.0
"""Seconds after which an unknown job is looked up again."""
MOST_AT_ONCE = 100
_SCONTROL = re.compile(r"JobId=(\d+) .*?JobName=(.*?)\s+UserId=([^\s(]+)\(\d+\).*?\sAccount=(\S+)", re.DOTALL)
_SLUID = re.compile(SHAPES["sluid"])
_SACCT = ("JobIDRaw", "User", "Account", "JobName")
_NOBODY = JobFacts()


class ClusterLookup:
    """Remember what was found out. `ask` runs in a thread and may take its time; it may fail, too."""

    def __init__(
        self, ask: Ask, *, pause: float = PAUSE_SECONDS, again: float = AGAIN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._ask, self._pause, self._again, self._clock = ask, pause, again, clock
        self._cache: dict[str, tuple[JobFacts, float]] = {}
        self._wanted: dict[str, None] = {}
        self._lock, self._wake = threading.Lock(), threading.Event()
        self._over = False
        self._failures = 0
        self._thread = threading.Thread(target=self._run, name="look-up", daemon=True)
        self._thread.start()

    def facts(self, job: str) -> JobFacts | None:
        """Return what is known of a job; None until it was looked up, empty facts for an unknown job."""
        entry = self._cache.get(job)
        if entry is None or (entry[0] is _NOBODY and self._clock() >= entry[1]):
            with self._lock:
                self._wanted[job] = None
            self._wake.set()
        return entry[0] if entry else None

    def keep(self, jobs: Iterable[str]) -> None:
        """Forget all jobs but these."""
        present = set(jobs)
        with self._lock:
            self._cache = {job: entry for job, entry in self._cache.items() if job in present}
            self._wanted = {job: None for job in self._wanted if job in present}

    def close(self) -> None:
        """End the thread; a question under way is not waited for."""
        self._over = True
        self._wake.set()

    def _run(self) -> None:
        while not self._over:
            self._wake.wait()
            self._wake.clear()
            time.sleep(self._pause)
            while self._wanted and not self._over:
                self._look(list(self._wanted)[:MOST_AT_ONCE])

    def _look(self, jobs: Sequence[str]) -> None:
        """Ask about some jobs. A failure is an answer too: their series must not wait for ever."""
        try:
            facts = self._ask([job for job in jobs if job.isdigit() or _SLUID.fullmatch(job)])
            self._failures = 0
        except Exception as error:  # noqa: BLE001  whatever goes wrong there must not stop the measuring
            facts = {}
            self._failures += 1
            if self._failures == 1:
                log.warning("owners of jobs cannot be looked up: %s", error)
        again = self._clock() + self._again
        with self._lock:
            for job in jobs:
                self._cache[job] = (facts.get(job, _NOBODY), again)
                self._wanted.pop(job, None)


def start_lookup(options: AgentOptions) -> ClusterLookup:
    """Make the look-up that the options ask for."""
    if options.look_up not in HOW:
        raise ConfigRefused(f"There is no look-up `{options.look_up}`.", hint=f"There are none, {', '.join(HOW)}.")
    if options.look_up == "slurm":
        return ClusterLookup(ask_slurm)
    if options.database is None:
        raise ConfigRefused(f"The look-up `{options.look_up}` needs --database FILE.",
                            hint="The agent's page says what stands in it.")  # fmt: skip
    return ClusterLookup(_slurmdbd(options.database, options.slurm_cluster) if options.look_up == "slurmdbd"
                else _oar(options.database))  # fmt: skip


def ask_slurm(jobs: Sequence[str]) -> dict[str, JobFacts]:
    """Ask slurmctld about each job; those it has forgotten already, all at once, in the accounting.

    A job whose cgroup is named by its SLUID is looked up by it; its facts then hold its number.
    """
    known_jobs: dict[str, JobFacts] = {}
    for job in jobs:
        try:
            answer = scontrol(output(["scontrol", "--oneliner", "show", "job", job]))
        except CommandFailed as error:
            if job.isdigit() and "Invalid job id" not in str(error):
                raise
            continue
        if job.isdigit():
            known_jobs.update(answer)
        elif len(answer) == 1:
            [(number, facts)] = answer.items()
            known_jobs[job] = facts._replace(job=number)
    missing = [job for job in jobs if job not in known_jobs and job.isdigit()]
    if missing:
        columns = ",".join(_SACCT)
        command = ["sacct", "--noheader", "--parsable2", "--allocations", f"--jobs={','.join(missing)}",
                   f"--format={columns}"]  # fmt: skip
        known_jobs.update(sacct(output(command)))
    return known_jobs


def scontrol(text: str) -> dict[str, JobFacts]:
    """Read `scontrol show job`, in one line a job or in many."""
    rows = {job: JobFacts(user, _without_null(account), name) for job, name, user, account in _SCONTROL.findall(text)}
    return {job: facts._replace(name=_without_null(facts.name)) for job, facts in rows.items()}


def sacct(text: str) -> dict[str, JobFacts]:
    """Read `sacct` printed with bars between the columns. A job's name is the last of them, as it may hold bars."""
    rows = (line.split("|", len(_SACCT) - 1) for line in text.splitlines())
    return {row[0]: JobFacts(row[1], row[2], row[3]) for row in rows if len(row) == len(_SACCT) and row[0].isdigit()}


def _without_null(text: str) -> str:
    return "" if text in {"(null)", "N/A"} else text


def _slurmdbd(file: Path, cluster: str) -> Ask:
    from oarlock.store.queries.usage import history

    history.slurm_statement(cluster, [])  # a name that cannot be one is refused at the start
    client = next((name for name in ("mariadb", "mysql") if shutil.which(name)), None)
    if client is None:
        raise ConfigRefused("Slurm's database is asked with MariaDB's client, which is not installed.",
                            hint="Install `mariadb-client`, or give --look-up slurm.")  # fmt: skip
    command = [client, f"--defaults-extra-file={file.absolute()}", "--batch", "--skip-column-names"]

    def ask(jobs: Sequence[str]) -> dict[str, JobFacts]:
        numbers = [int(job) for job in jobs if job.isdigit()]
        answer = output(command, text_in=history.slurm_statement(cluster, numbers)) if numbers else ""
        return {str(job.id): JobFacts(job.user, job.account, job.name) for job in history.slurm_jobs(answer)}

    return ask


def _oar(file: Path) -> Ask:
    from oarlock.settings import secret
    from oarlock.store.queries.usage import history

    conninfo = secret.read(f"{secret.PREFIX}{file.absolute()}")

    def ask(jobs: Sequence[str]) -> dict[str, JobFacts]:
        rows = history.oar_jobs(conninfo.value if conninfo else "", [int(job) for job in jobs if job.isdigit()])
        return {str(job.id): JobFacts(job.user, job.account, job.name) for job in rows}

    return ask
