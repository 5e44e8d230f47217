"""Changes of the walltime of running jobs: requested by `oarwalltime`, granted right after a scheduling pass.

Only then is the stored plan true of this instant and no pass under way, so that what is granted moves nobody who was
given a date.
"""

from collections.abc import Callable, Mapping

from msgspec import Struct

from oarlock.config import Config
from oarlock.job.run.effects import ChangeWalltime, Effect, ScheduleAgain
from oarlock.job.run.unit_of_work import StepContext, UnitOfWork
from oarlock.lang import duration
from oarlock.model.errors import WalltimeRefused
from oarlock.model.event import EventType
from oarlock.model.job import FINAL, HOLDS_RESOURCES, Job, JobState
from oarlock.model.job_type import container_type, parse_types
from oarlock.store.engine import facts
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import jobs, shapes, walltime_changes
from oarlock.store.queries.job.walltime_changes import WalltimeChange
from oarlock.store.queries.site import administration

_BEGUN = FINAL | HOLDS_RESOURCES - {JobState.TO_LAUNCH, JobState.LAUNCHING}
_EVERY_QUEUE = "_"
_EVERYBODY = "*"


class WalltimeStatus(Struct, frozen=True, kw_only=True):
    """The walltime of a job and its changes, in seconds; `most` is None where an increase has no limit."""

    job_id: int
    state: JobState
    begun: bool = True
    walltime: int | None = None
    most: int | None = 0
    granted: int = 0
    pending: int = 0
    force: bool = False
    delay_next_jobs: bool = False


class WalltimeAsker(Struct, frozen=True):
    """Who requests a change: all names by which settings may speak of the user."""

    name: str
    groups: tuple[str, ...] = ()
    admin: bool = False

    def is_listed(self, users: tuple[str, ...]) -> bool:
        """Return whether a setting that lists users names this one; administrators need not be named."""
        names = {_EVERYBODY, self.name, *(f"@{group}" for group in self.groups)}
        return self.admin or not names.isdisjoint(users)


def status(tx: Tx, config: Config, job_id: int) -> WalltimeStatus:
    """Return the walltime of a job, what was granted, and how much more may be requested."""
    job = jobs.get(tx, job_id)
    if job.state is not JobState.RUNNING:
        return WalltimeStatus(job_id=job_id, state=job.state, begun=job.state in _BEGUN)
    change, walltime = walltime_changes.of_job(tx, job_id), shapes.walltimes(tx, [job.assigned])[job.assigned]
    return WalltimeStatus(
        job_id=job_id,
        state=job.state,
        walltime=walltime,
        most=_most(config, job, walltime - change.granted),
        granted=change.granted,
        pending=change.pending,
        force=change.force,
        delay_next_jobs=change.delay_next_jobs,
    )


def request(
    tx: Tx,
    config: Config,
    job_id: int,
    text: str,
    asker: WalltimeAsker,
    *,
    now: int,
    force: bool = False,
    delay_next_jobs: bool = False,
) -> WalltimeStatus:
    """Store a request for another walltime (`WalltimeRefused` if it may not be); the next pass looks at it."""
    current = status(tx, config, job_id)
    if current.walltime is None:
        raise WalltimeRefused(
            f"job {job_id} is not running.", hint="Before it starts, its walltime is what `-l` asked for."
        )
    if not config.walltime_change_enabled:
        raise WalltimeRefused(
            "walltimes cannot be changed on this cluster (WALLTIME_CHANGE_ENABLED).",
            hint="Ask for enough when you submit: `oarsub -l …,walltime=…`.",
        )
    if force and not asker.is_listed(config.walltime_allowed_users_to_force):
        raise WalltimeRefused(
            f"{asker.name} may not use --force (WALLTIME_ALLOWED_USERS_TO_FORCE).",
            hint="Without --force as much is granted as delays nobody.",
        )
    if delay_next_jobs and not asker.is_listed(config.walltime_allowed_users_to_delay_jobs):
        raise WalltimeRefused(
            f"{asker.name} may not use --delay-next-jobs (WALLTIME_ALLOWED_USERS_TO_DELAY_JOBS).",
            hint="Without it as much is granted as delays nobody.",
        )
    pending = _seconds(text, current.walltime)
    _check_amount(tx, current, pending, now=now)
    change = walltime_changes.of_job(tx, job_id)
    walltime_changes.write(tx, change._replace(pending=pending, force=force, delay_next_jobs=delay_next_jobs))
    return status(tx, config, job_id)


def _seconds(text: str, walltime: int) -> int:
    """Return by how much a walltime changes: `+h:m:s` and `-h:m:s` are changes, `h:m:s` is a new walltime."""
    sign, digits = (text[0], text[1:]) if text[:1] in {"+", "-"} else ("", text)
    seconds = duration.parse(digits)
    return {"+": seconds, "-": -seconds}.get(sign, seconds - walltime)


def _check_amount(tx: Tx, current: WalltimeStatus, pending: int, *, now: int) -> None:
    if current.most is not None and pending > 0 and current.granted + pending > current.most:
        most = duration.show_unpadded(current.most)
        raise WalltimeRefused(
            f"request cannot be updated because the walltime cannot increase by more than {most}.",
            hint=f"`oarwalltime {current.job_id}` shows what is granted; WALLTIME_MAX_INCREASE is the limit.",
        )
    job = jobs.get(tx, current.job_id)
    over = now - _begin(tx, job, now=now)
    if pending < 0 and (current.walltime or 0) + pending <= over:
        raise WalltimeRefused(
            f"job {job.id} has been running for {duration.show_unpadded(over)}, longer than the walltime would be.",
            hint=f"`oardel {job.id}` ends it.",
        )


def _most(config: Config, job: Job, launched_with: int) -> int | None:
    """Return how much the walltime of a job may increase in all; None is without limit."""
    if not config.walltime_change_enabled or launched_with < _of_queue(config.walltime_min_for_change, job.queue):
        return 0
    most = _of_queue(config.walltime_max_increase, job.queue)
    return None if most < 0 else _share(most, launched_with)


def _share(value: float, walltime: int) -> int:
    """Return a number of seconds: values below 1 are a share of the walltime, as in OAR."""
    return int(value * walltime) if 0 < value < 1 else int(value)


def _of_queue(values: Mapping[str, float], queue: str) -> float:
    return values.get(queue, values.get(_EVERY_QUEUE, 0.0))


QuotaCheck = Callable[[WalltimeChange, int], int]
"""A change, and the seconds that would be granted of it → as many of them as quotas allow."""


def grant(unit: UnitOfWork, within_quotas: QuotaCheck) -> None:
    """Grant what fits of the pending changes; what does not stays pending. Called after the plan was written."""
    if not unit.config.walltime_change_enabled:
        return
    changes = walltime_changes.pending(unit.tx)
    unit.load([change.job_id for change in changes])
    for change in changes:
        _grant(unit, unit.jobs[change.job_id], change, within_quotas)


def _grant(unit: UnitOfWork, job: Job, change: WalltimeChange, within_quotas: QuotaCheck) -> None:
    walltime = shapes.walltimes(unit.tx, [job.assigned])[job.assigned]
    end = _begin(unit.tx, job, now=unit.now) + walltime
    seconds = change.pending if change.pending < 0 else _increase(unit, job, change, walltime, end)
    if seconds > 0:
        seconds = within_quotas(change, seconds)
    if not seconds:
        return
    left = change.pending - seconds
    change = change._replace(
        pending=left,
        granted=change.granted + seconds,
        granted_with_force=change.granted_with_force + (seconds if change.force else 0),
        granted_with_delay_next_jobs=change.granted_with_delay_next_jobs + (seconds if change.delay_next_jobs else 0),
    )
    walltime_changes.write(unit.tx, change)
    shapes.set_walltimes(unit.tx, {job.assigned: walltime + seconds})
    says = f" walltime changed: {duration.show_unpadded(walltime + seconds)} "
    unit.event(EventType.WALLTIME, says + f"(granted: {signed(change.granted)}/pending: {signed(left)})", job.id)
    unit.add_effects(*_effects(unit, job, walltime + seconds), ScheduleAgain())


def _increase(unit: UnitOfWork, job: Job, change: WalltimeChange, walltime: int, end: int) -> int:
    """Return how much of an increase is granted now."""
    config, wanted = unit.config, change.pending
    if not change.force:
        wait = _share(_of_queue(config.walltime_change_apply_time, job.queue), walltime)
        step = _share(_of_queue(config.walltime_increment, job.queue), walltime)
        if wait > 0 and end - unit.now > wait:
            return 0
        wanted = min(wanted, step) if step > 0 else wanted
    return max(0, min(wanted, _free_until(unit, job, change, end) - end))


def _free_until(unit: UnitOfWork, job: Job, change: WalltimeChange, end: int) -> int:
    """Return until when a job could keep its resources: to the next planned start, maintenance or container end."""
    given = jobs.resources_of(unit.tx, [job.id]).get(job.id, [])
    start = walltime_changes.next_planned_start(unit.tx, given, after=end, reservations_only=change.delay_next_jobs)
    limits = [] if start is None else [start - unit.config.scheduler_job_security_time]
    windows = administration.maintenance_windows(unit.tx, properties.types(unit.tx), now=unit.now)
    limits += [window.start for window in windows if window.stop > end and not set(given).isdisjoint(window.resources)]
    limits += [_begin(unit.tx, outer, now=unit.now) + walltime for outer, walltime in _containers(unit, job)]
    return min(limits, default=end + change.pending)


def _containers(unit: UnitOfWork, job: Job) -> list[tuple[Job, int]]:
    """Return the running containers that an inner job may be in, with their walltimes."""
    named = parse_types(job.types).inner
    if not named:
        return []
    candidates = jobs.existing(unit.tx, [int(named)]) if named.isdecimal() else []
    candidates += jobs.of_type(unit.tx, container_type(named))
    outer = [job for job in candidates if parse_types(job.types).is_container and job.state in HOLDS_RESOURCES]
    walltimes = shapes.walltimes(unit.tx, [job.assigned for job in outer])
    return [(job, walltimes[job.assigned]) for job in outer]


def _begin(tx: Tx, job: Job, *, now: int) -> int:
    """Return the instant from which the walltime counts: time spent suspended moves it, a jump of the clock too."""
    return facts.read_clock_jumps(tx).today(job.start) + jobs.suspended_seconds(tx, now=now).get(job.id, 0)


def look_again(tx: Tx, context: StepContext, *, now: float) -> list[Effect]:
    """Return the effects that are due because time passes: another pass where changes are pending.

    Nodes are sent the walltimes once more: one that was away, or the server itself, may have missed the message.
    """
    if not context.config.walltime_change_enabled:
        return []
    unit = UnitOfWork(tx, context, now, walltime_changes.granted(tx))
    walltimes = shapes.walltimes(tx, [job.assigned for job in unit.jobs.values()])
    for job in unit.jobs.values():
        unit.add_effects(*_effects(unit, job, walltimes[job.assigned]))
    if walltime_changes.pending(tx):
        unit.add_effects(ScheduleAgain())
    return unit.write()


def _effects(unit: UnitOfWork, job: Job, walltime: int) -> list[Effect]:
    attempt = unit.attempts.get(job.id)
    if attempt is None or attempt.closed_us is not None:
        return []
    return [ChangeWalltime(tuple(node.name for node in attempt.nodes), job.id, attempt.number, walltime)]


def signed(seconds: int) -> str:
    """Write a change of a walltime as OAR does: `+0:5:0`, `-0:1:0`, `0:0:0`."""
    sign = "+" if seconds > 0 else "-" if seconds < 0 else ""
    return sign + duration.show_unpadded(abs(seconds))
