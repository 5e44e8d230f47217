"""One attempt on one node: its cgroup, its command, its signals and its end; what happened is in its report.

What a request means, and when to wait for what, is the supervisor's business (`supervisor.py`).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from typing import NamedTuple

from oarlock.node import trust
from oarlock.node.attempt import job_cgroup, site_script, spool
from oarlock.node.attempt.debug_log import DebugLog
from oarlock.node.attempt.job_cgroup import ManagerUnusable
from oarlock.node.attempt.lease import CHECKPOINT, END, KILL, Lease
from oarlock.node.attempt.link import ProgramLink, receive_with_fd
from oarlock.node.attempt.spool import file_path
from oarlock.node.attempt.staging import work_folder
from oarlock.node.attempt.user import command, logind
from oarlock.node.attempt.user.children import ChildProcesses, NoteWriter, format_note
from oarlock.node.attempt.user.command import CannotStart
from oarlock.node.attempt.user.environment import JobFiles
from oarlock.node.attempt.user.identity import AccountCache
from oarlock.node.attempt.user.spawner import SpawnerVanished
from oarlock.node.cgroup.base import CgroupDriver, CgroupError, JobCgroup
from oarlock.node.cgroup.signals import choose_targets
from oarlock.node.wire.channel import Body
from oarlock.node.wire.messages import (
    EXIT,
    EXITED,
    FIRST,
    NOT_NOW,
    OTHER,
    UNUSABLE,
    WALLTIME,
    Launch,
    NodeRequestRefused,
    NodeSettings,
    Report,
)

_OTHER_MARGIN = 60.0
_STAGE_IN = "STAGE_IN_ERROR"
_TIDY_SECONDS = 10.0  # for what was unpacked to be taken away
_NOTES_SECONDS = 1.0  # for the last notes in a user's file to be written


def now() -> float:
    """Return the seconds since boot, system sleep included (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def memory_kill(kills: int, limit: int | None) -> str:
    """Describe how many processes of a job the kernel killed for memory, and over which limit in bytes."""
    count = "a process" if kills == 1 else f"{kills} processes"
    over = "the node had none left" if limit is None else f"the job reached its limit of {limit >> 20} MiB"
    return f"the kernel killed {count} of the job for want of memory; {over}"


class EndedBeforeStart(Exception):
    """The attempt was ended before the user's code began."""


class SupervisorTools(NamedTuple):
    """What a supervisor keeps for all its attempts."""

    settings: NodeSettings
    driver: CgroupDriver
    boot: str
    link: ProgramLink
    accounts: AccountCache
    children: ChildProcesses
    notes: NoteWriter
    wait: Callable[[float, list[int]], None]  # until an instant, or for something on these descriptors
    on_finish: Callable[[], None]  # when the job has to end
    log: DebugLog


class AttemptRun:
    """The run of one attempt."""

    def __init__(self, tools: SupervisorTools, launch: Launch, key: spool.Key) -> None:
        self._tools, self._key = tools, key
        self.launch = launch = work_folder.place(launch, tools.settings)
        self.state = "launching"
        self.report = Report(launch.job, launch.attempt, tools.settings.node, tools.boot, EXITED)
        self.is_ending = self._lingers = self._has_files = False
        self._public_key = ""  # of the pair that was made here
        self.began = 0.0
        self._group: JobCgroup | None = None
        self._stderr = -1
        self._brought: work_folder.Files = {}  # to the directory of a job on a desktop, before the job began
        # Other nodes keep the place a little longer: the first may still be within its grace.
        margin = launch.grace + _OTHER_MARGIN if launch.role == OTHER else 0.0
        self.lease = Lease(launch.walltime, checkpoint=launch.checkpoint, margin=margin)
        self._files = JobFiles.of(tools.settings.runtime, spool.entry_name(key))
        tools.notes.pending = []
        self.check_writer()
        tools.children.reset()

    # The beginning.

    def start(self) -> None:
        """Make the cgroup and start the command; `CannotStart` or `EndedBeforeStart` if it does not begin."""
        self._make_cgroup()
        self._lingers = logind.keep_user(self.launch.user, self._tools.settings.node, self._key)
        if self.launch.role == FIRST:
            self._run_prologue()
        if self._tools.settings.work:
            work_folder.make(self.launch, lowest_uid=self._tools.settings.lowest_uid)
        if self.launch.stage_in:
            self._stage_in()
        if self.launch.role == FIRST and self.launch.key:
            self._write_files(self.launch)  # the public half is reported with the start
        if self.launch.role == FIRST and not self.launch.interactive:
            self._start_command()
        self.state = "running"
        self.report = self.report._replace(started=time.time())
        self.began = now()
        self.lease.begin(self.began)
        self._tools.log.write("running", pid=self._tools.children.main)

    def describe(self) -> Body:
        """Return the description of the attempt for a node program."""
        return {
            "job": self.launch.job,
            "attempt": self.launch.attempt,
            "state": self.state,
            "started": self.report.started,
            "role": self.launch.role,
            **({"key": self._public_key} if self._public_key else {}),
        }

    def _make_cgroup(self) -> None:
        try:
            self._group = job_cgroup.make_cgroup(self.launch, self._tools.driver, self._tools.settings.node)
            self.launch = job_cgroup.drop_undenied_devices(self.launch, self._tools.driver)
            self._tools.log.write("cgroup made", path=str(self._group.path))
        except (CgroupError, OSError) as error:
            self._blame_manager("CPUSET_ERROR", error)
            raise CannotStart("CPUSET_ERROR", str(error)) from error

    def _blame_manager(self, event: str, error: Exception) -> None:
        """Note what went wrong with the site's own program, where it takes the place of the cgroup step."""
        if self.launch.hooks.manager:
            self._blame(event, UNUSABLE if isinstance(error, ManagerUnusable) else EXIT)

    def job_cgroup(self) -> JobCgroup:
        """Return the group of the job; raise `CannotStart` if it has none yet."""
        if self._group is None:
            raise CannotStart("CPUSET_ERROR", "the job has no cgroup")
        return self._group

    def command_spec(self, launch: Launch) -> command.CommandSpec:
        """Build what a child needs; write the files of the job first, if they are not there."""
        self._write_files(launch)
        return self._spec(launch)

    def _spec(self, launch: Launch) -> command.CommandSpec:
        account = self._tools.accounts.get(launch.user, launch.uid, now=now())
        return command.make_command_spec(
            launch, self.job_cgroup(), self._files, account, lowest_uid=self._tools.settings.lowest_uid
        )

    def _write_files(self, launch: Launch) -> None:
        if not self._has_files:
            self._public_key = command.write_files(launch, self._files)
            self._has_files = True

    def _start_command(self) -> None:
        """Start the child and wait until exec, or raise what the child reports."""
        launch = self.launch
        spec = self.command_spec(launch)
        child = self._tools.children.start(spec, self.job_cgroup())
        try:
            self._wait_for_exec(child, now() + launch.start_timeout)
        finally:
            child.status.close()

    def _wait_for_exec(self, child: command.StartedCommand, deadline: float) -> None:
        """Read the child's messages until exec. With a spawner, wait for its report first: each wake-up costs."""
        while True:
            try:
                data, stderr = receive_with_fd(child.status, command.LONGEST_MESSAGE)
            except BlockingIOError:
                self._raise_if_ending()
                if now() >= deadline:
                    raise self._start_timeout_error() from None
                # Exec closes the child's end a moment after the spawner may have reported its PID.
                self._tools.wait(deadline, [child.status.fileno()] if self._tools.children.main else [])
                continue
            if not data and self._stderr < 0:
                raise CannotStart("EXIT_VALUE_OAREXEC", "the child vanished before the user's command")
            if not data:
                return
            if stderr >= 0:
                self._stderr = stderr
            elif isinstance(message := command.parse_child_message(data), CannotStart):
                raise message
            else:
                self._tools.accounts.add(message, self.launch.uid, now=now())

    def _stage_in(self) -> None:
        """Unpack the job's archive below its directory; raise `CannotStart` if that fails or takes too long."""
        from oarlock.node.attempt.staging import stage_in  # imported late: what a supervisor maps, every fork pays for

        launch = self.launch
        spec = self.command_spec(launch)
        try:
            fd = os.open(file_path(self._tools.settings.spool, launch.stage_in), os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise CannotStart(_STAGE_IN, f"its archive is not on the node: {error.strerror}") from error
        aside = f".stage-in.{spool.entry_name(self._key)}.{self._tools.settings.node}"
        archive = stage_in.Archive(fd, launch.stage_in_most, aside)
        child = stage_in.start(spec, self.job_cgroup().join, archive)
        os.close(fd)
        try:
            self._wait_for_unpacking(child)
        finally:
            child.status.close()
        if self._tools.settings.work:
            self._brought = work_folder.scan(launch.directory)

    def _wait_for_unpacking(self, child: command.StartedCommand) -> None:
        pid, seconds = child.pid or 0, self.launch.stage_in_timeout
        status = self._ended_by(pid, now() + seconds)
        if status is None:
            os.kill(pid, signal.SIGTERM)  # not yet collected, so the number is still its own
            self._ended_by(pid, now() + _TIDY_SECONDS)
            self.job_cgroup().kill()
            self._raise_if_ending()
            raise CannotStart(_STAGE_IN, f"the archive was not unpacked within {seconds} s")
        while data := command.receive_message(child.status):
            message = command.parse_child_message(data)
            if isinstance(message, CannotStart):
                raise message
            self._tools.accounts.add(message, self.launch.uid, now=now())
        if status:
            raise CannotStart(_STAGE_IN, f"unpacking ended with {site_script.describe_exit(status)}")

    def _stage_out(self) -> None:
        """Pack what the job wrote on a desktop, and take its directory away; a failure is an event."""
        from oarlock.node.attempt.staging import stage_out  # imported late, as above

        launch = self.launch
        most = launch.stage_out_most if launch.role == FIRST and self.report.started is not None else 0
        directory = stage_out.JobDirectory(launch.directory, self._brought, most)
        try:
            child = stage_out.start(self._spec(launch), directory, self._tools.settings.spool, self._key)
        except (CannotStart, OSError, trust.UnsafeDirectory) as error:
            self.add_event(stage_out.EVENT, f"what the job wrote cannot be packed: {error}")
            return
        try:
            self._wait_for_packing(child)
        finally:
            child.status.close()

    def _wait_for_packing(self, child: command.StartedCommand) -> None:
        from oarlock.node.attempt.staging import stage_out

        pid, seconds = child.pid or 0, self.launch.stage_out_timeout
        self.is_ending = False  # a job that was ended has written files as well
        if self._ended_by(pid, now() + seconds) is None:
            os.kill(pid, signal.SIGKILL)
            self._ended_by(pid, now() + _TIDY_SECONDS)
            says = "the job was killed meanwhile" if self.is_ending else f"that took more than {seconds} s"
            self.add_event(stage_out.EVENT, f"what the job wrote is kept in {self.launch.directory}: {says}")
            return
        while data := command.receive_message(child.status):
            message = command.parse_child_message(data)
            if isinstance(message, CannotStart) and message.event:
                self.add_event(message.event, str(message))
            elif isinstance(message, CannotStart):
                packed = stage_out.parse_packed(str(message))
                self.report = self.report._replace(stage_out=packed.sha256, stage_out_size=packed.size)
        try:
            os.rmdir(self.launch.directory)
        except OSError:
            return  # what could not be brought back is still in it

    def _start_timeout_error(self) -> Exception:
        if self._stderr >= 0:
            return SpawnerVanished("the command was about to run, and nobody said that it did")
        seconds = self.launch.start_timeout
        return CannotStart("WORKING_DIRECTORY", f"the user's directory did not answer within {seconds} s")

    def _raise_if_ending(self) -> None:
        if self.is_ending:
            raise EndedBeforeStart

    # Scripts of the site.

    def _run_prologue(self) -> None:
        problem = self._hook("prologue", self.launch.hooks.prologue)
        self._raise_if_ending()
        if problem:
            self._blame("PROLOGUE_ERROR", problem.cause)
            raise CannotStart("PROLOGUE_ERROR", problem.says)

    def _run_epilogue(self) -> None:
        if self.launch.role == FIRST:
            self.is_ending = False  # the epilogue runs also when the attempt was ended
            problem = self._hook("epilogue", self.launch.hooks.epilogue)
            if problem:
                self._blame("EPILOGUE_ERROR", problem.cause)
                self.add_event("EPILOGUE_ERROR", problem.says)

    def _blame(self, event: str, cause: str) -> None:
        """Note in the report why a program of the site failed."""
        self.report = self.report._replace(causes={**self.report.causes, event: cause})

    def _hook(self, word: str, path: str) -> site_script.ScriptProblem | None:
        """Run a script of the site, if there is one; return what went wrong."""
        if not path:
            return None
        tools = self._tools
        context = site_script.HookContext(word, path, self.launch, tools.settings.node, self._files.nodes)
        tools.log.write(word, path=path)
        problem = site_script.run_hook(context, tools.driver, lambda pid, seconds: self._ended_by(pid, now() + seconds))
        tools.log.write(f"{word} ended", problem=problem.says if problem else None)
        return problem

    def _ended_by(self, pid: int, deadline: float) -> int | None:
        """Wait for a child; `None` when its time is over, or when the attempt has to end first."""
        was_ending = self.is_ending
        while (status := self._tools.children.status(pid)) is None:
            if now() >= deadline or self.is_ending != was_ending:
                return None
            self._tools.wait(deadline, [])
        return status

    # While it runs.

    def enforce_lease(self) -> None:
        """Send the checkpoint signal, end the job or kill it, as the lease says."""
        due = self.lease.due(now())
        if due == KILL:
            self.job_cgroup().kill()
        elif due == END:
            self.add_event("WALLTIME", f"the walltime of {self.lease.walltime} s is over")
            self.finish(WALLTIME, self.launch.grace)
        elif due == CHECKPOINT:
            self.checkpoint()

    def finish(self, outcome: str, grace: int) -> None:
        """Send TERM to the job; what is left after the grace is killed as a whole."""
        if not self.is_ending:
            self.is_ending, self.report = True, self.report._replace(outcome=outcome)
            self._tools.log.write("to be ended", outcome=outcome, grace=grace)
            self.note("KILLED")
            if self.lease.is_suspended:
                self._thaw_to_end()
            if self._group is not None:
                self._group.signal(signal.SIGTERM)
            self._tools.on_finish()
        self.lease.finish(now(), grace)

    def _thaw_to_end(self) -> None:
        """Resume a job so that it can end by itself; one that cannot be resumed is killed after its grace."""
        try:
            self._thaw()
        except (CgroupError, OSError) as error:
            self.lease.resume(now())
            self.add_event("RESUME_ERROR", str(error))

    def checkpoint(self) -> None:
        """Send the checkpoint signal, once."""
        number = self.launch.checkpoint_signal
        self.lease.signalled()
        self.note(f"CHECKPOINTED with signal {number}")
        self.signal(number)
        self._tools.link.send_event({"event": "checkpointed", **self.describe()})
        self.add_event("CHECKPOINT_SUCCESS", f"signal {number} was sent")

    def signal(self, number: int) -> None:
        """Send a signal to those processes of the job that wait for it; if none does, to the command."""
        group = self.job_cgroup()
        pids = group.pids()
        group.signal(number, [pid for pid in choose_targets(number, pids, self._tools.children.main) if pid in pids])

    def check_running(self) -> None:
        """Refuse a request that only makes sense while the command runs."""
        if self.state != "running" or self.is_ending or self.launch.role != FIRST:
            raise NodeRequestRefused(NOT_NOW, f"the job is {'ending' if self.is_ending else self.state} here")

    def suspend(self) -> None:
        """Freeze the job; its walltime stands still."""
        if self.lease.is_suspended:
            return
        if self.state != "running" or self.is_ending:
            raise NodeRequestRefused(NOT_NOW, f"the job is {self.state} here; it cannot be suspended")
        try:
            self._freeze("suspend")
        except (CgroupError, OSError) as error:
            raise NodeRequestRefused("SUSPEND_ERROR", str(error)) from error
        self.state = "suspended"
        self.lease.suspend(now())

    def resume(self) -> None:
        """Thaw a job that was suspended."""
        if not self.lease.is_suspended:
            return
        try:
            self._thaw()
        except (CgroupError, OSError) as error:
            raise NodeRequestRefused("RESUME_ERROR", str(error)) from error

    def _freeze(self, verb: str) -> None:
        """Suspend or resume the job: by the freezer, or by the site's own program."""
        group = self.job_cgroup()
        if self.launch.hooks.suspend:
            job_cgroup.suspend_by_program(self.launch, self._tools.settings.node, group, verb)
        elif verb == "suspend":
            group.freeze()
        else:
            group.thaw()

    def _thaw(self) -> None:
        self._freeze("resume")
        self.lease.resume(now())
        self.state = "running"

    def add_event(self, event: str, says: str) -> None:
        """Add an event to the report."""
        self._tools.log.write("event", type=event, says=says)
        self.report = self.report._replace(events=(*self.report.events, (event, says)))

    def note(self, what: str) -> None:
        """Write to the user's stderr what was done to the job."""
        if self._stderr >= 0:
            self._tools.notes.add(self._stderr, format_note(self.launch.job, what, time.localtime()))

    def check_writer(self) -> None:
        """Write the notes that waited for an earlier one, if that is written by now."""
        notes = self._tools.notes
        if notes.pid and self._tools.children.status(notes.pid) is not None:
            notes.pid = 0
            notes.go_on(self._stderr)

    # The end.

    def stop(self) -> None:
        """Kill what is left of the job, and remove its cgroup."""
        if self.report.started is not None:
            ran = self.lease.ran(now())
            self.report = self.report._replace(ended=time.time(), ran=ran, status=self._tools.children.outcome)
        self.state = "ending"
        self._tools.log.write("command ended", status=self.report.status)
        if self._group is not None:
            self._empty(self._group)

    def clean_up(self) -> None:
        """Run the epilogue, and remove what was made for the job."""
        self._run_epilogue()
        for path in self._files:
            spool.remove(path)
        if self._lingers:
            logind.release_user(self.launch.user, self._tools.settings.node, self._key)
        if self._stderr >= 0:
            if self._tools.notes.pending:
                self._ended_by(self._tools.notes.pid, now() + _NOTES_SECONDS)
                self.check_writer()
            os.close(self._stderr)
        if self._tools.settings.work and os.path.isdir(self.launch.directory):
            self._stage_out()

    def _empty(self, group: JobCgroup) -> None:
        try:
            if self._is_empty(group):
                self._tools.children.reap()
                counters = group.counters()
                self.report = self.report._replace(counters=counters)
                self._report_memory_kills(int(counters.get("memory_oom_kills_total", 0)))
                group.remove()
                self._tools.log.write("cgroup removed")
            else:
                left = f"processes are left in {group.path}: {group.pids()[:5]}"
                self.add_event("CPUSET_CLEAN_ERROR", left)
        except (CgroupError, OSError) as error:
            self._blame_manager("CPUSET_CLEAN_ERROR", error)
            self.add_event("CPUSET_CLEAN_ERROR", str(error))

    def _report_memory_kills(self, kills: int) -> None:
        """Report to the server, and to the user in stderr, that the kernel killed processes of the job for memory."""
        if not kills:
            return
        says = memory_kill(kills, self.launch.limits.memory)
        self.add_event("OUT_OF_MEMORY", says)
        self.note(f"OUT OF MEMORY: {says}")

    def _is_empty(self, group: JobCgroup) -> bool:
        if group.wait_empty(0):
            return True
        self._tools.link.flush_now()
        return job_cgroup.kill_and_wait(group)
