"""The invariants that are not about one job: accounting, arrays, dependencies, quotas, the rows themselves."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from oarlock.job.check.finding import CheckFinding, broken, warning
from oarlock.model.job import HOLDS_RESOURCES, JobState
from oarlock.model.job_type import parse_types
from oarlock.model.snapshot import PlacedJob, QuotaRule
from oarlock.plan.rules.quotas import CountedJob, QuotaUse, quota_shares
from oarlock.store import migrations
from oarlock.store.queries.site.integrity import JobRecord
from oarlock.store.queries.site.integrity_site import SiteRecords
from oarlock.store.queries.usage.accounting import AccountingRow

_MOST = 20  # sentences of one kind: the first few tell as much as thousands


def judge(site: SiteRecords) -> Iterator[CheckFinding]:
    """Yield what is wrong with what was read at once."""
    yield from _arrays(site)
    yield from _resources(site)
    yield from _whole(site)
    yield from _secrets(site)
    yield from _measurements(site)
    yield from _one_server(site)


def _arrays(site: SiteRecords) -> Iterator[CheckFinding]:
    for array in site.arrays:
        if (array.members, array.lowest, array.highest) != (array.indexes, 1, array.members):
            text = f"array {array.array_id} has {array.members} members with {array.indexes} indexes"
            yield broken(14, f"{text} from {array.lowest} to {array.highest}", job=array.array_id)
        if array.users > 1:
            yield broken(14, f"array {array.array_id} belongs to {array.users} users", job=array.array_id)
    for array_id in site.half_arrays:
        yield broken(14, f"array {array_id} was stored, and some of its members wait to be", job=array_id)


def _resources(site: SiteRecords) -> Iterator[CheckFinding]:
    for resource in site.resources:
        if resource.open_states != [resource.state]:
            history = ", ".join(resource.open_states) or "nothing"
            yield broken(15, f"resource {resource.id} is {resource.state}, and its history ends with {history}")


def _whole(site: SiteRecords) -> Iterator[CheckFinding]:
    if site.revision != migrations.REVISIONS[-1]:
        text = f"the database has form `{site.revision}`, and this version uses `{migrations.REVISIONS[-1]}`"
        yield broken(20, text)
    yield from (broken(20, f"{count} rows of {table} belong to nothing") for table, count in site.orphans)
    yield from (broken(20, f"the database is damaged: {damage}") for damage in site.damage)
    if site.broken_audit is not None:
        yield broken(20, f"entry {site.broken_audit} of the audit is not as it was written")


def _secrets(site: SiteRecords) -> Iterator[CheckFinding]:
    if site.private_keys:
        yield broken(19, f"{site.private_keys} private keys of jobs stand in the database")
    if site.plain_tokens:
        yield broken(19, f"{site.plain_tokens} tokens are stored as they are, not as hashes")


def _measurements(site: SiteRecords) -> Iterator[CheckFinding]:
    for job, problem in islice(site.bad_samples, _MOST):
        yield warning(21, f"job {job} {problem}", job=job)
    for job, node in islice(site.strange_samples, _MOST):
        yield warning(21, f"job {job} was measured on {node}, where it never ran", job=job)


def _one_server(site: SiteRecords) -> Iterator[CheckFinding]:
    """Every generation but the first begins with an event, and attempts of the present one are the last."""
    names = {name for name, _ in site.generations}
    if names and site.generation is None:
        yield broken(22, "jobs were launched, and the database says of no generation that it is its own")
    elif len(names | {site.generation} - {None}) > site.restores + 1:
        count = len(names | {site.generation})
        yield broken(22, f"{count} generations wrote the database, and {site.restores} began after a restore")
    elif site.generations and site.generation in names:
        last = max(site.generations, key=lambda pair: pair[1])[0]
        if last != site.generation:
            yield broken(22, f"generation {last} launched jobs after generation {site.generation} had begun")


def judge_accounts(
    stored: Sequence[AccountingRow], expected: Mapping[AccountingRow, int], *, since: int = 0
) -> Iterator[CheckFinding]:
    """Yield the rows of the accounting that are not what jobs used and asked for.

    Rows before the oldest one may have been deleted by an administrator. If windows of several lengths were used, only
    the sums are compared. Of windows that begin before `since`, jobs were purged or stayed in another resource manager.
    """
    there = {row._replace(consumption=0): int(row.consumption) for row in stored if row.window_start >= since}
    expected = {row: amount for row, amount in expected.items() if row.window_start >= since}
    if {row.window_stop - row.window_start for row in there} - {row.window_stop - row.window_start for row in expected}:
        yield from _sums(there, expected)
        return
    oldest = min((row.window_start for row in there), default=0)
    keys = sorted({*there, *(row for row in expected if row.window_start >= oldest)})
    wrong = (row for row in keys if there.get(row, 0) != expected.get(row, 0))
    for row in islice(wrong, _MOST):
        text = f"{row.kind} of {row.user} ({row.project}, {row.queue}) from {row.window_start} on"
        yield broken(10, f"{text} is accounted as {there.get(row, 0)} resource-seconds and was {expected.get(row, 0)}")


def _sums(there: Mapping[AccountingRow, int], expected: Mapping[AccountingRow, int]) -> Iterator[CheckFinding]:
    def summed(rows: Mapping[AccountingRow, int]) -> Counter[tuple[str, str, str, str]]:
        sums: Counter[tuple[str, str, str, str]] = Counter()
        for row, amount in rows.items():
            sums[row.kind, row.user, row.project, row.queue] += amount
        return sums

    mine, theirs = summed(there), summed(expected)
    for who in sorted({*mine, *theirs}):
        if mine[who] > theirs[who]:
            yield broken(10, f"{' '.join(who)} is accounted as {mine[who]} resource-seconds and was {theirs[who]}")


def judge_dependencies(
    required: Mapping[int, Sequence[int]], began: Mapping[int, int], ended: Mapping[int, int]
) -> Iterator[CheckFinding]:
    """Yield jobs that began before those that they depend on ended (in moves of all jobs), and circles."""
    for job, others in required.items():
        for other in others:
            if job in began and ended.get(other, 1 << 62) > began[job]:
                yield broken(12, f"job {job} started before job {other}, on which it depends, was over", job=job)
    for job in _in_circle(required):
        yield broken(12, f"job {job} depends on itself by way of others", job=job)


def _in_circle(required: Mapping[int, Sequence[int]]) -> list[int]:
    """Return the jobs that are left when those without open dependencies are taken away, again and again."""
    left = {job: set(others) & required.keys() for job, others in required.items()}
    while free := [job for job, others in left.items() if not others]:
        for job in free:
            del left[job]
        gone = set(free)
        left = {job: others - gone for job, others in left.items()}
    return sorted(left)


def judge_limits(
    present: Sequence[JobRecord], site: SiteRecords, quotas: Sequence[QuotaRule], *, now: int
) -> Iterator[CheckFinding]:
    """Yield quotas that are exceeded and queues that are gone; rules may have changed since: warnings."""
    for record in present:
        if record.job.queue not in site.queues:
            text = f"job {record.job.id} is in queue `{record.job.queue}`, which does not exist"
            yield warning(16, text, job=record.job.id)
    holding = [r for r in present if r.job.state in HOLDS_RESOURCES and r.job.state is not JobState.SUSPENDED]
    for share in quota_shares(quotas, [_counted(record, now) for record in holding]) if quotas else ():
        for word, used, most in zip(
            ("resources", "jobs", "resource-seconds"), share.used, _most(share.rule), strict=True
        ):
            if 0 <= most < used:
                whose = " ".join(share.whose)
                yield warning(16, f"{used} {word} are in use by jobs of `{whose}`, and the quota is {most}")


def _most(rule: QuotaRule) -> tuple[int, int, int]:
    return rule.resources, rule.jobs, rule.resource_seconds


def _counted(record: JobRecord, now: int) -> CountedJob:
    job = record.job
    placed = PlacedJob(
        job_id=job.id,
        moldable_id=job.assigned,
        user=job.user,
        queue=job.queue,
        state=job.state,
        start=job.start or now,
        stop=(job.start or now) + record.walltime,
        resources=tuple(record.resources),
        project=job.project,
        types=job.types,
    )
    count = len(record.resources)
    return CountedJob(placed, QuotaUse(count, 1, count * record.walltime), parse_types(job.types).besteffort)
