"""What holds jobs back, drawn at random into a snapshot: quotas, windows, containers, placeholders, dates."""

from random import Random

from msgspec.structs import replace

from oarlock.model.job import JobState, Reservation
from oarlock.model.snapshot import MaintenanceWindow, PlacedJob, QuotaRule, QuotaSpan, Snapshot, WaitingJob
from tests.plan.drawing import NOW, shape


def limited(r: Random, drawn: Snapshot) -> Snapshot:
    """Add some of everything."""
    if r.random() < 0.5:
        drawn = _with_rooms(r, drawn)
    if r.random() < 0.3:
        drawn = replace(drawn, waiting=tuple(_with_placeholder(r, job) for job in drawn.waiting))
    if r.random() < 0.4:
        drawn = replace(drawn, windows=tuple(_window(r, drawn, at) for at in range(r.randint(1, 3))))
    if r.random() < 0.6:
        drawn = replace(drawn, quotas=_rules(r) if r.random() < 0.8 else (), quota_spans=_spans(r))
        drawn = replace(drawn, waiting=tuple(_perhaps_free(r, job) for job in drawn.waiting))
    return replace(drawn, waiting=tuple(_with_dates(r, job) for job in drawn.waiting))


def _rules(r: Random) -> tuple[QuotaRule, ...]:
    return tuple(_rule(r) for _ in range(r.randint(1, 3)))


def _rule(r: Random) -> QuotaRule:
    who = (
        r.choice(["*", "*", "/", "default", "other"]),
        r.choice(["*", "*", "/", "p"]),
        r.choice(["*", "*", "*", "besteffort", "timesharing"]),
        r.choice(["*", "/", "/", "ada"]),
    )
    most = r.choice([-1, 0, 2, 3, 5, 8]), r.choice([-1, -1, 1, 2]), r.choice([-1, -1, 60, 200])
    return QuotaRule(*who, *most)


def _perhaps_free(r: Random, job: WaitingJob) -> WaitingJob:
    return replace(job, types=(*job.types, "no_quotas")) if r.random() < 0.1 else job


def _spans(r: Random) -> tuple[QuotaSpan, ...]:
    sets = [_rules(r), _rules(r)]
    begin, spans = NOW - 20, []
    for _ in range(r.choice([0, 0, 2, 4])):
        end = begin + r.choice([10, 30, 70])
        spans.append(QuotaSpan(begin, end, r.choice(sets)))
        begin = end + r.choice([0, 0, 15])
    return tuple(spans)


def _window(r: Random, drawn: Snapshot, at: int) -> MaintenanceWindow:
    start = NOW + r.choice([-30, 0, 5, 20, 60])
    some = tuple(one for one in drawn.resources.ids if r.random() < 0.5)
    return MaintenanceWindow(f"w{at}", start, start + r.choice([10, 40, 90]), (*some, 99) if r.random() < 0.2 else some)


def _with_rooms(r: Random, drawn: Snapshot) -> Snapshot:
    """Make containers of some jobs, and let others belong into them; some into one that is gone, or their own."""
    form = r.choice(["container", "container", "container=lab"])
    numbers = [job.job_id for job in (*drawn.placed, *drawn.waiting)]
    rooms = set(r.sample(numbers, r.randint(1, min(2, len(numbers)))))
    into = [*map(str, rooms)] * 5 + ["lab", "777"]
    placed = tuple(replace(job, types=(*job.types, form)) if job.job_id in rooms else job for job in drawn.placed)
    inside = [_inside(r, 50 + at, job) for at, job in enumerate(placed) if job.job_id in rooms and r.random() < 0.7]
    many, one = len(drawn.shapes), len(drawn.shapes) + 1
    waiting = []
    for job in drawn.waiting:
        if job.job_id in rooms:
            job = _asking(replace(job, types=(*job.types, form)), r.choice([many, None]), r.choice([1, 4, 9]))
        if r.random() < (0.1 if job.job_id in rooms else 0.6):
            job = _asking(replace(job, types=(*job.types, f"inner={r.choice(into)}")), r.choice([one, one, None]), 1)
        waiting.append(job)
    shapes = (*drawn.shapes, shape("core=BEST"), shape("resource_id=1"))
    return replace(drawn, shapes=shapes, placed=(*placed, *inside), waiting=tuple(waiting))


def _asking(job: WaitingJob, number: int | None, longer: int) -> WaitingJob:
    """Let a job ask for another shape, or the same, for so many times as long."""
    choices = tuple(
        replace(one, shape=one.shape if number is None else number, walltime=one.walltime * longer)
        for one in job.choices
    )
    return replace(job, choices=choices)


def _inside(r: Random, job_id: int, container: PlacedJob) -> PlacedJob:
    """Draw a job that runs inside of a container; or of another, which is over."""
    running = container.state != JobState.WAITING
    return replace(
        container,
        job_id=job_id,
        moldable_id=job_id * 10,
        types=(f"inner={container.job_id if r.random() < 0.8 else 777}",),
        resources=container.resources[: r.randint(1, 3)],
        stop=r.choice([container.stop, container.start + 2]),
        state=r.choice([JobState.RUNNING, JobState.LAUNCHING]) if running else JobState.WAITING,
        reservation=Reservation.NONE if running else Reservation.SCHEDULED,
    )


def _with_placeholder(r: Random, job: WaitingJob) -> WaitingJob:
    kept = r.choice([(), (), ("placeholder=a",), ("placeholder=b",), ("allow=a",), ("allowed=a",), ("allow=b",)])
    return replace(job, types=(*job.types, *kept))


def _with_dates(r: Random, job: WaitingJob) -> WaitingJob:
    return replace(
        job,
        not_before=NOW + r.choice([-10, 5, 40]) if r.random() < 0.1 else 0,
        deadline=NOW + r.choice([-5, 15, 50, 90]) if r.random() < 0.1 else None,
    )
