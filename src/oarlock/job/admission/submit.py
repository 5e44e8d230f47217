"""Submit: an admitted submission becomes waiting jobs, in one transaction."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import islice

from msgspec import Struct
from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission.admit import CountedSubmission, readmit
from oarlock.job.admission.containers import check_entry
from oarlock.job.admission.feasibility import ClusterResources
from oarlock.job.admission.parse import JOB_NUMBERS, read
from oarlock.job.admission.payload import SLICE_ROWS, check_size, is_large, rows_of
from oarlock.lang import where as conditions
from oarlock.lang.rules import RuleAcceptance
from oarlock.lang.where import STORED
from oarlock.model.condition import Condition, both, without
from oarlock.model.errors import NotYourJob, OarlockError, UnknownJob, UnknownQueue
from oarlock.model.job import FINAL, Job, JobKind, JobState, Reservation
from oarlock.model.job_type import JobType, parse_types
from oarlock.model.submission import ResourceRequest, Submission
from oarlock.model.submission_errors import CountsChanged, JobKeyTaken, ResubmitRefused, UnknownDependency
from oarlock.store.engine import journal
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.cluster import properties
from oarlock.store.queries.job import files, job_keys, jobs, scripts, shapes
from oarlock.store.queries.job import new_jobs as stored_new_jobs
from oarlock.store.queries.job.job_keys import JobKey
from oarlock.store.queries.job.new_jobs import IncomingArray, NewJob
from oarlock.store.queries.site import administration
from oarlock.store.queries.users import user_records

__all__ = [
    "AdmittedSubmission",
    "LargeArray",
    "StoredJobs",
    "begin_large",
    "earlier_result",
    "finish_large",
    "is_large",
    "prepare",
    "read",
    "resubmission",
    "submit",
    "submit_all",
]

VERB = "submit"
DEFAULT_QUEUE, DEFAULT_PROJECT = "default", "default"
_KEY_GONE = "The key that was brought for job {} is not kept after its end: the new job gets one of its own."


class AdmittedSubmission(Struct, frozen=True):
    """An admitted submission, and the id of the request that brought it.

    `counted`: what the rules counted for it, to be looked at again when it is stored. `job_key`: what is stored of the
    key of its jobs, if they have one.
    """

    admitted: RuleAcceptance
    request_id: str | None = None
    counted: CountedSubmission | None = None
    job_key: JobKey | None = None

    @property
    def user(self) -> str:
        """Who submits."""
        return self.admitted.submission.user

    @property
    def key(self) -> tuple[str, str | None]:
        """What tells a request from all others, if it has an id."""
        return self.user, self.request_id


@dataclass(frozen=True, slots=True)
class StoredJobs:
    """What a submission became: its first job, and how many jobs there are, numbered one after the other.

    `is_repeated`: they were stored when the same request came before.
    """

    first: Job
    count: int
    is_repeated: bool = field(default=False, compare=False)

    @property
    def ids(self) -> range:
        """The numbers of the jobs, in their order."""
        return range(self.first.id, self.first.id + self.count)


def submit(
    tx: Tx,
    admitted: RuleAcceptance,
    *,
    cluster: ClusterResources,
    config: Config,
    now: int,
    request_id: str | None = None,
) -> list[Job]:
    """Store what was asked for, all of an array or nothing; give the jobs, in their order.

    A request id that was answered before gives the jobs of that answer: nothing is stored twice.
    """
    [done] = submit_all(tx, [AdmittedSubmission(admitted, request_id)], cluster=cluster, config=config, now=now)
    if isinstance(done, OarlockError):
        raise done
    return jobs.get_many(tx, done.ids)


def submit_all(
    tx: Tx, submissions: Sequence[AdmittedSubmission], *, cluster: ClusterResources, config: Config, now: int
) -> list[StoredJobs | OarlockError]:
    """Store several submissions in as many statements as one; the answer to each is its jobs, or why it is refused.

    Of two with the same request id the second gets the jobs of the first.
    """
    there = _queues(tx)
    prepared: dict[int, list[NewJob]] = {}
    answers: dict[int, StoredJobs | OarlockError] = {}
    first = {
        submission.key: place for place, submission in reversed(list(enumerate(submissions))) if submission.request_id
    }
    answered_keys = user_records.answered_keys(
        tx, [(submission.user, submission.request_id) for submission in submissions if submission.request_id]
    )
    for place, submission in enumerate(submissions):
        if first.get(submission.key, place) != place:
            continue
        try:
            done = (
                earlier_result(tx, user=submission.user, request_id=submission.request_id)
                if submission.key in answered_keys
                else None
            )
            if done is None:
                _refuse_taken_key(tx, submission, [submissions[other] for other in prepared])
                admitted = _recounted(tx, submission, prepared.values())
                prepared[place] = _prepared(tx, admitted, there, cluster=cluster, config=config, now=now)
            else:
                answers[place] = done
        except OarlockError as refusal:
            answers[place] = refusal
    answers.update(_stored(tx, submissions, prepared, now))
    return [answers[first.get(submission.key, place)] for place, submission in enumerate(submissions)]


def _recounted(tx: Tx, submission: AdmittedSubmission, others: Iterable[Sequence[NewJob]]) -> RuleAcceptance:
    """Look again at the counts of a submission, of which others may have been stored, or are about to be."""
    if submission.counted is None:
        return submission.admitted
    mine = [new_jobs for new_jobs in others if new_jobs[0].job.user == submission.user]
    reserved = sum(len(new_jobs) for new_jobs in mine if new_jobs[0].job.reservation is not Reservation.NONE)
    return readmit(
        tx, submission.counted, submission.admitted, more_jobs=sum(map(len, mine)), more_reservations=reserved
    )


def _refuse_taken_key(tx: Tx, submission: AdmittedSubmission, others: Iterable[AdmittedSubmission] = ()) -> None:
    """Refuse a key that a job of another user has, or is about to have: its owner could enter both."""
    if submission.job_key is None or not submission.job_key.is_imported:
        return
    fingerprint = submission.job_key.fingerprint
    owners = job_keys.live_owners(tx, [fingerprint]).get(fingerprint, set())
    owners |= {other.user for other in others if other.job_key and other.job_key.fingerprint == fingerprint}
    if owners - {submission.user}:
        raise JobKeyTaken


def _stored(
    tx: Tx, submissions: Sequence[AdmittedSubmission], prepared: Mapping[int, list[NewJob]], now: int
) -> Iterator[tuple[int, StoredJobs]]:
    """Store what is ready, with the answers to its requests; give the jobs by the place of their submission."""
    added = iter(stored_new_jobs.add(tx, [new for new_jobs in prepared.values() for new in new_jobs]))
    members = {place: list(islice(added, len(new_jobs))) for place, new_jobs in prepared.items()}
    stored = {
        place: _summary(new_jobs[0], prepared[place][0].parameters, len(new_jobs))
        for place, new_jobs in members.items()
    }
    _touch_files(tx, [new_jobs[0] for new_jobs in members.values()], now)
    keys = {
        stored[place].ids: submission.job_key
        for place, submission in enumerate(submissions)
        if place in stored and submission.job_key is not None
    }
    if keys:
        job_keys.add(tx, keys)
    sent = {place: submissions[place].admitted.submission.script for place in stored}
    scripts.keep_submitted(tx, ((stored[place].first.id, text) for place, text in sent.items() if text), now=now)
    noted = [(submission.request_id, stored[place]) for place, submission in enumerate(submissions) if place in stored]
    _remember(tx, noted, now)
    yield from stored.items()


def _touch_files(tx: Tx, stored: Iterable[Job], now: int) -> None:
    if used := {job.file_id for job in stored if job.file_id is not None}:
        files.touch(tx, used, now=now)


def _summary(first: Job, parameters: str, count: int) -> StoredJobs:
    return StoredJobs(replace(first, command=jobs.with_parameters(first.command, parameters)), count)


@dataclass(frozen=True, slots=True)
class LargeArray:
    """An array that is stored slice by slice, so that others get their turn between two of them."""

    submission: AdmittedSubmission
    incoming: IncomingArray

    @property
    def slices(self) -> Iterator[range]:
        """Yield the places of the members of each slice."""
        count, step = (
            len(self.incoming.parameters),
            max(1, SLICE_ROWS // rows_of(self.submission.admitted.submission, 1)),
        )
        yield from (range(start, min(start + step, count)) for start in range(0, count, step))


def begin_large(
    tx: Tx, submission: AdmittedSubmission, *, cluster: ClusterResources, config: Config, now: int
) -> StoredJobs | LargeArray:
    """Begin to store a large array; a request that was answered before gives that answer."""
    done = earlier_result(tx, user=submission.user, request_id=submission.request_id)
    if done is not None:
        return done
    _refuse_taken_key(tx, submission)
    admitted = _recounted(tx, submission, ())
    alone = replace(admitted.submission, array=("",))
    [new] = _prepared(tx, RuleAcceptance(alone), _queues(tx), cluster=cluster, config=config, now=now)
    return LargeArray(
        replace(submission, admitted=admitted), stored_new_jobs.begin_array(tx, new, admitted.submission.array)
    )


def finish_large(tx: Tx, large: LargeArray, *, now: int) -> StoredJobs:
    """Make a large array visible, all of it, unless a rule that counts refuses it by now."""
    submission, incoming = large.submission, large.incoming
    done = earlier_result(tx, user=submission.user, request_id=submission.request_id)
    if done is not None:
        stored_new_jobs.remove_array(tx, incoming.numbers)
        return done
    if _recounted(tx, submission, ()).submission != submission.admitted.submission:
        raise CountsChanged(
            f"Other jobs of {submission.user} came and went while the array was stored.", hint="Submit it again."
        )
    _refuse_taken_key(tx, submission)
    stored_new_jobs.finish_array(tx, incoming)
    _touch_files(tx, [incoming.first], now)
    stored = _summary(incoming.first, incoming.parameters[0], len(incoming.parameters))
    if submission.job_key is not None:
        job_keys.add(tx, {stored.ids: submission.job_key})
    if script := submission.admitted.submission.script:
        scripts.keep_submitted(tx, [(stored.first.id, script)], now=now)
    _remember(tx, [(submission.request_id, stored)], now)
    return stored


def earlier_result(tx: Tx, *, user: str, request_id: str | None) -> StoredJobs | None:
    """Return the jobs that a request made when it came before. Call this before the rules, which would count them."""
    answer = None if request_id is None else user_records.answer_of(tx, user=user, request_id=request_id, verb=VERB)
    if answer is None:
        return None
    first, count = map(int, answer.split())
    return StoredJobs(jobs.get(tx, first), count, is_repeated=True)


def prepare(tx: Tx, admitted: RuleAcceptance, *, cluster: ClusterResources, config: Config, now: int) -> NewJob:
    """Check a submission against what there is, and describe its (first) job without storing it."""
    first = replace(admitted.submission, array=admitted.submission.array[:1])
    [new] = _prepared(tx, RuleAcceptance(first), _queues(tx), cluster=cluster, config=config, now=now)
    return replace(new, job=replace(new.job, command=jobs.with_parameters(new.job.command, new.parameters)))


def _prepared(
    tx: Tx, admitted: RuleAcceptance, there: frozenset[str], *, cluster: ClusterResources, config: Config, now: int
) -> list[NewJob]:
    submission = admitted.submission
    check_size(submission)
    request = _with_default_walltime(submission.request, config)
    counts = cluster.check(_without_rules(request, submission))
    queue = submission.queue or DEFAULT_QUEUE
    if queue not in there:
        raise UnknownQueue(queue)
    _check_dependencies(tx, submission.after)
    check_entry(tx, submission.user, parse_types(submission.types))
    if submission.file_id is not None:
        files.claim(tx, submission.file_id, user=submission.user, uid=submission.uid)
    first = _job(submission, queue, now, _message(submission, queue, request, counts[0]))
    whole = replace(request, where=_with_rules(request.where, submission.rule_where))
    return [
        NewJob(replace(first, array_index=place), whole, submission.after, member)
        for place, member in enumerate(submission.array, 1)
    ]


def _without_rules(request: ResourceRequest, submission: Submission) -> ResourceRequest:
    """Leave out of a job that is submitted again what rules added after the check against what there is."""
    if not submission.resubmit_of:
        return request
    return replace(request, where=without(request.where, map(_parsed, submission.rule_where)))


def resubmission(tx: Tx, job_id: int, *, user: str, uid: int | None = None, groups: Sequence[str] = ()) -> Submission:
    """Make a submission of an ended job of the same user, as it was; the rules look at it like at any other."""
    if job_id not in JOB_NUMBERS:
        raise UnknownJob(job_id)
    original = jobs.get(tx, job_id)
    _check_resubmission(original, user, uid)
    request = shapes.requests_of(tx, [job_id], properties.types(tx)).get(job_id)
    if request is None:
        raise ResubmitRefused(
            f"What job {job_id} asked for cannot be read any more.", hint="Submit it as a new job with -l."
        )
    key = job_keys.of_jobs(tx, [job_id]).get(job_id)
    return Submission(
        user=user,
        uid=uid,
        groups=tuple(groups),
        request=request,
        queue=original.queue,
        kind=original.kind,
        command=original.command,
        script=scripts.submitted(tx, original.array_id),
        name=original.name,
        project=original.project,
        types=original.types,
        checkpoint=original.checkpoint,
        checkpoint_signal=original.checkpoint_signal,
        notify=original.notify or None,
        directory=original.directory,
        environment=original.environment,
        stdout=original.stdout,
        stderr=original.stderr,
        resubmit_of=job_id,
        use_key=key is not None,
        notes=(_KEY_GONE.format(job_id),) if key is not None and key.is_imported else (),
        initial_request=original.initial_request,
        submitted_from=original.info,
        file_id=original.file_id,
    )


def _remember(tx: Tx, done: Sequence[tuple[str | None, StoredJobs]], now: int) -> None:
    """Keep the answers to submissions, and note them in the log."""
    answers = [
        (stored.first.user, request_id, f"{stored.first.id} {stored.count}")
        for request_id, stored in done
        if request_id
    ]
    user_records.remember_answers(tx, answers, verb=VERB, at=now)
    for _, stored in done:
        about: dict[str, object] = {"job": stored.first.id, "user": stored.first.user, "queue": stored.first.queue}
        if stored.count > 1:
            about["jobs"] = stored.count
        if stored.first.resubmit_of:
            about["original"] = stored.first.resubmit_of
        journal.note(tx, journal.JOBS, "job submitted again" if stored.first.resubmit_of else "job submitted", about)


def _with_default_walltime(request: ResourceRequest, config: Config) -> ResourceRequest:
    """Return a request whose alternatives without a walltime have the site's default."""
    alternatives = tuple(
        alternative if alternative.walltime is not None else replace(alternative, walltime=config.default_job_walltime)
        for alternative in request.alternatives
    )
    return replace(request, alternatives=alternatives)


def _queues(tx: Tx) -> frozenset[str]:
    return frozenset(queue.name for queue in administration.all_queues(tx))


def _check_dependencies(tx: Tx, after: Sequence[int]) -> None:
    """Refuse to wait for a job that never was: it would be for ever."""
    if not after:
        return
    try:
        jobs.get_many(tx, after)
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
        info=submission.submitted_from,
        reservation=Reservation.TO_SCHEDULE if submission.reservation else Reservation.NONE,
        submitted=now,
        start=submission.reservation[0] if submission.reservation else 0,
        checkpoint=submission.checkpoint,
        checkpoint_signal=submission.checkpoint_signal,
        resubmit_of=submission.resubmit_of,
        command=submission.command,
        uid=submission.uid,
        file_id=submission.file_id,
        login_host=submission.login_host,
    )


def _message(submission: Submission, queue: str, request: ResourceRequest, resources: int) -> str:
    """Sum a job up in one line, as OAR does: R=4,W=0:10:0,J=B,N=name."""
    minutes, seconds = divmod(request.alternatives[0].walltime or 0, 60)
    mode = "R" if submission.reservation else "I" if submission.kind is JobKind.INTERACTIVE else "B"
    parts = [f"R={resources}", f"W={minutes // 60}:{minutes % 60}:{seconds}", f"J={mode}"]
    if submission.name:
        parts.append(f"N={submission.name}")
    if queue not in {DEFAULT_QUEUE, JobType.BESTEFFORT}:
        parts.append(f"Q={queue}")
    if submission.project not in {None, DEFAULT_PROJECT}:
        parts.append(f"P={submission.project}")
    if submission.types:
        parts.append(f"T={'|'.join(job_type.partition('=')[0] for job_type in submission.types)}")
    return ",".join(parts)


def _with_rules(where: Condition | None, more: Iterable[str]) -> Condition | None:
    """Join the conditions that rules added after the check against what there is."""
    for text in more:
        where = both(where, _parsed(text))
    return where


@lru_cache(maxsize=256)
def _parsed(text: str) -> Condition:
    """Read what a rule added: the same for most jobs."""
    return conditions.parse(text, limits=STORED)


def _check_resubmission(job: Job, user: str, uid: int | None) -> None:
    if job.user != user or (uid is not None and job.uid not in {None, uid}):
        raise NotYourJob(f"Job {job.id} is not yours.", hint="Only its owner submits it again.")
    if job.kind is JobKind.INTERACTIVE or job.reservation is not Reservation.NONE:
        raise ResubmitRefused(
            f"Job {job.id} is interactive or a reservation.", hint="Only batch jobs are submitted again."
        )
    if job.state not in FINAL:
        raise ResubmitRefused(f"Job {job.id} is {job.state}.", hint="Only a job that is over is submitted again.")
