"""A Slurm cluster, as its own commands describe it: sinfo its nodes, squeue jobs that live, sacct jobs that ended.

The way for a site that gives no account of slurmdbd's database. A command has its time, and is run once a minute at
most: what it said, or that it failed, holds until then.
"""

import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from oarlock.lang import slurm
from oarlock.lang.sacct import COMMAND, NEEDED, is_set, read_separated, state_word, wait_status
from oarlock.lang.sacct_usage import USAGE_FIELDS, AccountedUsage, read_usage
from oarlock.model.errors import BadRequest, ConfigRefused
from oarlock.model.job import FINAL, HOLDS_RESOURCES, JobState
from oarlock.model.source import (
    QUESTION_SECONDS,
    EndedJobs,
    NodeChange,
    SourceAway,
    SourceChoice,
    SourceEvent,
    SourceGroup,
    SourceJob,
    SourceLevel,
    SourceNode,
    SourceNodes,
    SourceQueue,
)
from oarlock.node.commands import CommandFailed, find, output

KEPT_SECONDS = 60.0
"""How long an answer holds, and so does a failure."""

_COMMANDS = ("sinfo", "squeue", "sacct")
_SECONDS = QUESTION_SECONDS - 5  # so that a command that is slow is ended, and not only left alone
_WINDOW = 6 * 3600  # of ended jobs that are asked for at once
_LATE = 600  # seconds after which slurmdbd may still learn of an end
_AT_ONCE = 500
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "TZ": "UTC0"}  # a night of summer time has hours twice
_NODE_FIELDS = "%N|%c|%m|%T|%R|%a"
_LIVE_FIELDS = ("%A", "%F", "%K", "%U", "%u", "%a", "%P", "%T", "%r", "%V", "%S", "%l", "%C", "%D", "%Q", "%N", "%j")
_ENDED_FIELDS = (*NEEDED, "JobID", "UID", "Account", "TimelimitRaw", "JobName")  # a name may have line ends: the last
_OVER = "CANCELLED,COMPLETED,FAILED,TIMEOUT,NODE_FAIL,PREEMPTED,BOOT_FAIL,DEADLINE,OUT_OF_MEMORY"
_FINISHING = "COMPLETING"
_NOWHERE = frozenset({"", "None assigned", "Unknown", "(null)"})
_EVENT_FIELDS = ("NodeName", "StateRaw", "TimeStart", "TimeEnd")
_DAY = 86_400
_MEMORY_PROPERTY = "memnode"  # in MB, as OAR's sites have it

Run = Callable[[Sequence[str]], str]


def run_command(command: Sequence[str]) -> str:
    """Run a command of Slurm; `CommandFailed` if it fails or takes too long."""
    return output(command, timeout=_SECONDS, environment=_ENVIRONMENT)


class SlurmCommands:
    """A Slurm cluster, asked by its commands. `run` executes one."""

    name = "Slurm's commands"

    def __init__(
        self, run: Run = run_command, *, now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:  # fmt: skip
        self._run, self._now, self._monotonic = run, now, monotonic
        self._kept: dict[tuple[str, ...], tuple[float, str | SourceAway]] = {}
        self._lock = threading.Lock()
        self._complete_until = 0.0
        self._over: set[int] = set()
        self._separator = f"|{secrets.token_hex(6)}|"

    def nodes(self, *, since: int) -> SourceNodes:
        """Return nodes as sinfo has them now, partitions, and since when nodes were away, as far as slurmdbd knows."""
        text = self._ask("sinfo", "--all", "--Node", "--noheader", f"--format={_NODE_FIELDS}")
        rows = [row for line in text.splitlines() if len(row := line.split("|")) == _NODE_FIELDS.count("%")]
        nodes = {row[0]: _node(row) for row in rows}
        partitions = {row[4]: row[5] == "up" for row in rows}
        queues = [SourceQueue(name, 0, active=is_up) for name, is_up in sorted(partitions.items())]
        changes = [change for change in self._events_of_nodes(since) if change.node in nodes]
        return SourceNodes(nodes=[nodes[name] for name in sorted(nodes)], queues=queues, node_changes=changes)

    def live(self) -> Sequence[SourceJob]:
        """Return jobs that wait and run: squeue knows why, and when one would start."""
        text = self._ask("squeue", "--all", "--noheader", f"--format={self._separator.join(_LIVE_FIELDS)}")
        lines = (line.split(self._separator) for line in text.split("\n"))
        rows = (dict(zip(_LIVE_FIELDS, values, strict=True)) for values in lines if len(values) == len(_LIVE_FIELDS))
        jobs = (_live_job(row) for row in rows if row["%A"].isdecimal() and row["%T"] != _FINISHING)
        with self._lock:  # what sacct has told to be over since is not brought back to life
            return [job for job in jobs if job.id not in self._over]

    def jobs(self, ids: Collection[int]) -> Sequence[SourceJob]:
        """Return these jobs."""
        wanted = sorted(ids)
        rows: list[SourceJob] = []
        for at in range(0, len(wanted), _AT_ONCE):
            rows += self._sacct(f"--jobs={','.join(map(str, wanted[at : at + _AT_ONCE]))}")
        return rows

    def ended(self, cursor: tuple[int, int], most: int) -> EndedJobs:
        """Return jobs that ended since an instant and shortly before it; the number of a cursor counts those given."""
        at, given = cursor
        if not given and self._monotonic() < self._complete_until:
            return EndedJobs((), cursor, complete=True)
        now = int(self._now())
        # Whole minutes: while an answer is given in parts, the question stays the same.
        until = max(min(at + _WINDOW, now - now % 60 + 60), at)
        jobs = self._sacct(f"--starttime={_date(at - _LATE)}", f"--endtime={_date(until)}", f"--state={_OVER}")
        jobs = sorted((job for job in jobs if job.state in FINAL), key=lambda job: (job.stop, job.id))
        part = jobs[given : given + most]
        if given + most < len(jobs):
            return EndedJobs(part, (at, given + most), complete=False)
        complete = until >= now
        if complete:
            self._complete_until = self._monotonic() + KEPT_SECONDS
        return EndedJobs(part, (min(until, now), 0), complete)

    def events(self, after: int, most: int, *, since: int) -> Sequence[SourceEvent]:  # noqa: ARG002
        """Return nothing: these commands tell no events of jobs."""
        return ()

    def close(self) -> None:
        """Nothing is open."""

    def usage(self, ids: Collection[int]) -> dict[int, AccountedUsage]:
        """Return what these jobs used, from the rows of their steps."""
        fields = f"--format={','.join(USAGE_FIELDS)}"
        text = self._ask("sacct", "--allusers", "--parsable2", f"--delimiter={self._separator}", fields,
                         f"--jobs={','.join(map(str, sorted(ids)))}")  # fmt: skip
        try:
            return read_usage(read_separated(text, self._separator, needed=USAGE_FIELDS, steps=True))
        except BadRequest as error:
            raise SourceAway(self.name, f"sacct is not understood ({error})") from error

    def _events_of_nodes(self, since: int) -> list[NodeChange]:
        """Return when nodes were away; nothing where sacctmgr does not answer: what is now is known without it."""
        day = since - since % _DAY  # the same question all day
        try:
            text = self._ask("sacctmgr", "--noheader", "--parsable2", "show", "event", "event=node",
                             f"start={_date(day)}", f"format={','.join(_EVENT_FIELDS)}")  # fmt: skip
        except SourceAway:
            return []
        rows = [row for line in text.splitlines() if len(row := line.split("|")) == len(_EVENT_FIELDS)]
        changes = [
            slurm.node_change(name, _number(state), _instant(start), _instant(stop))
            for name, state, start, stop in rows
            if name
        ]
        return [change for change in changes if change]

    def _sacct(self, *choice: str) -> list[SourceJob]:
        fields = f"--format={','.join(_ENDED_FIELDS)}"
        text = self._ask("sacct", "--allusers", "--allocations", "--parsable2", f"--delimiter={self._separator}",
                         fields, *choice)  # fmt: skip
        try:
            jobs = [accounted_job(row) for row in read_separated(text, self._separator)]
        except (BadRequest, ValueError) as error:
            raise SourceAway(self.name, f"sacct is not understood ({error})") from error
        with self._lock:
            self._over |= {job.id for job in jobs if job.state in FINAL}
        return jobs

    def _ask(self, *command: str) -> str:
        """Run a command, unless it was run less than a minute ago."""
        now = self._monotonic()
        with self._lock:
            self._kept = {key: entry for key, entry in self._kept.items() if entry[0] > now}
            entry = self._kept.get(command)
        if entry is None:
            answer: str | SourceAway
            try:
                answer = self._run(command)
            except CommandFailed as failed:
                answer = SourceAway(self.name, str(failed).rstrip("."))
            entry = (self._monotonic() + KEPT_SECONDS, answer)
            with self._lock:
                self._kept[command] = entry
                if command[0] == "squeue":
                    self._over.clear()
        if isinstance(entry[1], SourceAway):
            raise entry[1]
        return entry[1]


def open_commands() -> SlurmCommands:
    """Return the source; `ConfigRefused` where Slurm's commands are not installed."""
    missing = [command for command in _COMMANDS if find(command) is None]
    if missing:
        raise ConfigRefused(
            f"SOURCE_DATABASE does not name the database of SLURM, and {missing[0]} is not installed here.",
            hint="Set SOURCE_DATABASE=mysql://oarlock@HOST/slurm_acct_db and SOURCE_PASSWORD=file:PATH, or install "
            "Slurm's commands.",
        )
    return SlurmCommands()


def accounted_job(row: Mapping[str, str]) -> SourceJob:
    """Return the job of a row of sacct."""
    number, word = int(row["JobIDRaw"]), state_word(row["State"])
    state = slurm.state_of(word)
    names = _hosts(row["NodeList"])
    start = _instant(row["Start"]) if names else 0
    array, _, index = row.get("JobID", "").partition("_")
    minutes = row.get("TimelimitRaw", "")
    return SourceJob(
        id=number,
        state=state,
        user=row["User"],
        uid=int(row["UID"]) if row.get("UID", "").isdecimal() else None,
        project=row.get("Account") or "default",
        queue=row["Partition"],
        name=row.get("JobName") or None,
        message="" if word == "COMPLETED" or state not in FINAL else f"Slurm: {word}",
        command=row.get("SubmitLine") or None,
        directory=row.get("WorkDir", ""),
        submitted=_instant(row["Submit"]),
        start=start,
        stop=max(_instant(row["End"]), start) if state in FINAL else 0,
        exit_code=wait_status(row["ExitCode"]) if names and state in FINAL else None,
        array_id=int(array) if index and array.isdecimal() else number,
        array_index=int(index) if index.isdecimal() else 1,
        **_held(number, names, cpus=row["NCPUS"], seconds=int(minutes) * 60 if minutes.isdecimal() else 0),
    )


def _live_job(row: Mapping[str, str]) -> SourceJob:
    number, word = int(row["%A"]), row["%T"]
    state = slurm.state_of(word, held=row["%Q"] == "0")
    names = _hosts(row["%N"]) if state in HOLDS_RESOURCES else []
    start, waits = _instant(row["%S"]), state in {JobState.WAITING, JobState.HOLD}
    reason = row["%r"].strip("()")
    array, index = row["%F"], row["%K"]
    return SourceJob(
        id=number,
        state=state,
        user=row["%u"],
        uid=int(row["%U"]) if row["%U"].isdecimal() else None,
        project=row["%a"] if row["%a"] not in _NOWHERE else "default",
        queue=row["%P"],
        name=row["%j"] or None,
        message=f"Slurm: {reason}" if waits and reason not in {"", "None", "null"} else "",
        submitted=_instant(row["%V"]),
        start=0 if waits else start,
        array_id=int(array) if array.isdecimal() else number,
        array_index=int(index) if index.isdecimal() else 1,
        suspended=state is JobState.SUSPENDED,
        planned=start if waits else 0,
        planned_choice=number if waits and start else 0,
        **_held(number, names, cpus=row["%C"], seconds=slurm.limit_seconds(row["%l"]), nodes=row["%D"]),
    )


def _held(number: int, names: Sequence[str], *, cpus: str, seconds: int, nodes: str = "") -> dict[str, Any]:
    """Return what a job asked for and has: of its cores Slurm tells how many they are, not where."""
    width = len(names) or (int(nodes) if nodes.isdecimal() else 1) or 1
    share, left = divmod(int(cpus) if cpus.isdecimal() else 0, width)
    levels = (SourceLevel("network_address", width), SourceLevel("core", max(share, 1)))
    return {
        "choices": (SourceChoice(number, seconds, (SourceGroup("", levels),)),),
        "assigned": number if names else 0,
        "places": tuple((name, share + (place < left)) for place, name in enumerate(names)),
    }


def _node(row: Sequence[str]) -> SourceNode:
    name, cpus, memory, word = row[:4]
    state, is_drained = slurm.node_state_of(word)
    properties = {_MEMORY_PROPERTY: int(memory)} if memory.isdecimal() and int(memory) else {}
    return SourceNode(name, max(int(cpus) if cpus.isdecimal() else 0, 1), state, is_drained, dict(properties))


def _number(text: str) -> int:
    return int(text) if text.isdecimal() else 0


def _hosts(text: str) -> list[str]:
    return slurm.hosts(text) if text not in _NOWHERE else []


def _date(instant: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(max(instant, 0)))


def _instant(text: str) -> int:
    """Convert a date of Slurm's: epoch seconds (SLURM_TIME_FORMAT=%s), or local time of this machine; 0 for none."""
    if text.isdecimal():
        return int(text)
    if not is_set(text):
        return 0
    try:
        return int(time.mktime(time.strptime(text, "%Y-%m-%dT%H:%M:%S")))
    except ValueError as error:
        raise BadRequest(f"`{text}` is not a date of sacct.", hint=f"Make the output with: {COMMAND}") from error
