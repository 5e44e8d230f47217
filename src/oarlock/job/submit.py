"""Submit: an admitted submission becomes jobs that wait, in one transaction."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

from oarlock.config import Config
from oarlock.job.existing import Cluster, Existing
from oarlock.job.reading import read
from oarlock.lang import where as conditions
from oarlock.lang.rules import Admitted
from oarlock.lang.where import STORED
from oarlock.model.condition import Condition, both
from oarlock.model.errors import (
    NotYourJob,
    OarlockError,
    ResubmitRefused,
    UnknownDependency,
    UnknownJob,
    UnknownQueue,
)
from oarlock.model.job import FINAL, Job, JobKind, JobState, Reservation
from oarlock.model.request import Request
from oarlock.model.submission import Submission
from oarlock.store import jobs, properties, queues, requests, shapes
from oarlock.store.jobs import New
from oarlock.store.tx import Tx

__all__ = ["Asked", "answered", "prepare", "read", "resubmit", "submit", "submit_all"]

log = logging.getLogger(__name__)

VERB = "submit"
DEFAULT_QUEUE, DEFAULT_PROJECT = "default", "default"


@dataclass(frozen=True, slots=True)
class Asked:
    """An admitted submission, and the id of the request that brought it (None: it is never repeated)."""

    admitted: Admitted
    request_id: str | None = None

    @property
    def request(self) -> requests.Request | None:
        """The request, as the store knows it."""
        return None if self.request_id is None else requests.Request(self.admitted.submission.user, self.request_id)


def submit(
    tx: Tx, admitted: Admitted, *, existing: Existing, config: Config, now: int, request_id: str | None = None
) -> list[Job]:
    """Store what was asked for, all of an array or nothing; give the jobs, in their order.

    A request id that was answered before gives the jobs of that answer: nothing is stored twice.
    """
    [done] = submit_all(tx, [Asked(admitted, request_id)], existing=existing, config=config, now=now)
    if isinstance(done, OarlockError):
        raise done
    return done


def submit_all(
    tx: Tx, asked: Sequence[Asked], *, existing: Existing, config: Config, now: int
) -> list[list[Job] | OarlockError]:
    """Do what `submit` does for many, in as many statements as for one; a refusal stands in the place of its jobs."""
    keys = [one.request or place for place, one in enumerate(asked)]
    first = dict(zip(reversed(keys), reversed(asked), strict=True))
    before = requests.known(tx, [one.request for one in first.values() if one.request])
    cluster, names = existing.now(tx), frozenset(queue.name for queue in queues.listed(tx))
    described = {
        key: _described(tx, one, cluster=cluster, config=config, now=now, queue_names=names)
        for key, one in first.items()
        if key not in before
    }
    new = [job for made in described.values() if not isinstance(made, OarlockError) for job in made]
    added = iter(jobs.add(tx, new))
    stored = {
        key: made if isinstance(made, OarlockError) else list(islice(added, len(made)))
        for key, made in described.items()
    }
    _remember_all(tx, stored, now)
    return [stored[key] if key in stored else _repeated(tx, key, before) for key in keys]


def answered(tx: Tx, *, user: str, request_id: str | None) -> list[Job] | None:
    """Give the jobs that a request made when it came before; ask this when rules refuse it: they count those jobs."""
    if request_id is None:
        return None
    request = requests.Request(user, request_id)
    before = requests.known(tx, [request])
    if request not in before:
        return None
    return _jobs_of(tx, before[request].answer_to(request, VERB))


def prepare(
    tx: Tx,
    admitted: Admitted,
    *,
    cluster: Cluster,
    config: Config,
    now: int,
    queue_names: Collection[str] | None = None,
) -> list[New]:
    """Check a submission against what there is, and describe its jobs without storing them.

    Whoever describes many gives the names of the queues, so that they are read once.
    """
    submission = admitted.submission
    request = _timed(submission.request, config)
    counts = cluster.check(request)
    names = {queue.name for queue in queues.listed(tx)} if queue_names is None else queue_names
    queue = _queue(submission.queue or DEFAULT_QUEUE, names)
    _known(tx, submission.after)
    first = _job(submission, queue, now, _message(submission, queue, request, counts[0]))
    whole = replace(request, where=_with_rules(request.where, submission.rule_where))
    return [
        New(replace(first, command=_command(submission, member), array_index=place), whole, submission.after)
        for place, member in enumerate(submission.array, 1)
    ]


def resubmit(tx: Tx, job_id: int, *, user: str, now: int, request_id: str | None = None) -> list[Job]:
    """Submit an ended job of the same user once more, as it was; rules do not look at it again."""
    done = answered(tx, user=user, request_id=request_id)
    if done is not None:
        return done
    original = jobs.get(tx, job_id)
    _repeatable(original, user)
    asked = shapes.requests_of(tx, [job_id], properties.types(tx)).get(job_id)
    if asked is None:
        raise ResubmitRefused(
            f"What job {job_id} asked for cannot be read any more.", hint="Submit it as a new job with -l."
        )
    copy = replace(
        original, id=0, state=JobState.WAITING, submitted=now, start=0, stop=0, assigned=0, exit_code=None,
        resubmit_of=job_id, array_index=1, suspended=False, accounted=False,
    )  # fmt: skip
    added = jobs.add(tx, [New(copy, asked)])
    if request_id is not None:
        requests.remember_all(tx, VERB, {requests.Request(user, request_id): _answer(added)}, at=now)
    log.info("job submitted again", extra={"job": added[0].id, "user": user, "original": job_id})
    return added


def _described(tx: Tx, one: Asked, **known: Any) -> list[New] | OarlockError:
    try:
        return prepare(tx, one.admitted, **known)
    except OarlockError as refusal:
        return refusal


def _repeated(
    tx: Tx, key: requests.Request | int, before: Mapping[requests.Request, requests.Done]
) -> list[Job] | OarlockError:
    assert isinstance(key, requests.Request)  # noqa: S101  (only requests with an id can have come before)
    try:
        return _jobs_of(tx, before[key].answer_to(key, VERB))
    except OarlockError as refusal:
        return refusal


def _jobs_of(tx: Tx, answer: str) -> list[Job]:
    first, count = map(int, answer.split())
    return jobs.many(tx, range(first, first + count))


def _remember_all(tx: Tx, stored: Mapping[requests.Request | int, list[Job] | OarlockError], now: int) -> None:
    answers = {
        key: _answer(added)
        for key, added in stored.items()
        if isinstance(key, requests.Request) and not isinstance(added, OarlockError)
    }
    requests.remember_all(tx, VERB, answers, at=now)
    for added in stored.values():
        if not isinstance(added, OarlockError):
            log.info("job submitted", extra={"job": added[0].id, "user": added[0].user, "jobs": len(added)})


def _answer(added: Sequence[Job]) -> str:
    return f"{added[0].id} {len(added)}"


def _timed(request: Request, config: Config) -> Request:
    """Give the site's walltime to alternatives that no rule gave one."""
    alternatives = tuple(
        one if one.walltime is not None else replace(one, walltime=config.default_job_walltime)
        for one in request.alternatives
    )
    return replace(request, alternatives=alternatives)


def _queue(name: str, names: Collection[str]) -> str:
    if name not in names:
        raise UnknownQueue(name)
    return name


def _known(tx: Tx, after: Sequence[int]) -> None:
    """Refuse to wait for a job that never was: it would be for ever."""
    if not after:
        return
    try:
        jobs.many(tx, after)
    except UnknownJob as unknown:
        raise UnknownDependency(unknown.job_id) from None


def _job(submission: Submission, queue: str, now: int, message: str) -> Job:
    name = f".{submission.name}" if submission.name else ""
    return Job(
        id=0,
        state=JobState.HOLD if submission.hold else JobState.WAITING,
        user=submission.user,
        queue=queue,
        kind=submission.kind,
        name=submission.name,
        project=submission.project or DEFAULT_PROJECT,
        types=submission.types,
        directory=submission.directory,
        environment=submission.environment,
        stdout=submission.stdout or f"OAR{name}.%jobid%.stdout",
        stderr=submission.stderr or f"OAR{name}.%jobid%.stderr",
        notify=submission.notify or "",
        message=message,
        initial_request=submission.initial_request,
        reservation=Reservation.TO_SCHEDULE if submission.reservation else Reservation.NONE,
        submitted=now,
        start=submission.reservation[0] if submission.reservation else 0,
        checkpoint=submission.checkpoint,
        checkpoint_signal=submission.checkpoint_signal,
        resubmit_of=submission.resubmit_of,
    )


def _command(submission: Submission, member: str) -> str | None:
    return f"{submission.command or ''} {member}".strip() if member else submission.command


def _message(submission: Submission, queue: str, request: Request, resources: int) -> str:
    """Sum a job up in one line, as OAR does: R=4,W=0:10:0,J=B,N=name."""
    minutes, seconds = divmod(request.alternatives[0].walltime or 0, 60)
    mode = "R" if submission.reservation else "I" if submission.kind is JobKind.INTERACTIVE else "B"
    parts = [f"R={resources}", f"W={minutes // 60}:{minutes % 60}:{seconds}", f"J={mode}"]
    if submission.name:
        parts.append(f"N={submission.name}")
    if queue not in {DEFAULT_QUEUE, "besteffort"}:
        parts.append(f"Q={queue}")
    if submission.project not in {None, DEFAULT_PROJECT}:
        parts.append(f"P={submission.project}")
    if submission.types:
        parts.append(f"T={'|'.join(one.partition('=')[0] for one in submission.types)}")
    return ",".join(parts)


def _with_rules(where: Condition | None, more: Iterable[str]) -> Condition | None:
    """Join the conditions that rules added after the check against what there is."""
    for text in more:
        where = both(where, _read_again(text))
    return where


@lru_cache(maxsize=1024)
def _read_again(text: str) -> Condition:
    """Read what a rule wrote; rules write the same again and again."""
    return conditions.parse(text, limits=STORED)


def _repeatable(job: Job, user: str) -> None:
    if job.user != user:
        raise NotYourJob(f"Job {job.id} is not yours.", hint="Only its owner submits it again.")
    if job.kind is JobKind.INTERACTIVE or job.reservation is not Reservation.NONE:
        raise ResubmitRefused(
            f"Job {job.id} is interactive or a reservation.", hint="Only batch jobs are submitted again."
        )
    if job.state not in FINAL:
        raise ResubmitRefused(f"Job {job.id} is {job.state}.", hint="Only a job that is over is submitted again.")
