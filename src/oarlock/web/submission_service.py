"""The submission service: parses, admits and stores submissions, in batches."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from msgspec.structs import replace

from oarlock.config import Config
from oarlock.job.admission import admit, frontend, stored_rules, submit, warnings
from oarlock.job.admission.admit import RunPythonRule
from oarlock.job.admission.feasibility import ClusterResourcesCache
from oarlock.job.admission.payload import SubmissionPayload
from oarlock.job.admission.private_key import ImportedKey, parse_key
from oarlock.job.admission.rules import RuleSet, RuleSetCache
from oarlock.lang.rules import RuleContext
from oarlock.model.errors import OarlockError
from oarlock.model.job import Job
from oarlock.model.job_type import parse_types
from oarlock.model.submission import Submission
from oarlock.model.submission_errors import BadJobKey, CountsChanged, RuleFailed
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import new_jobs
from oarlock.store.queries.job.job_keys import JobKey
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.web.concurrency import Batcher, KeyedLocks
from oarlock.web.core import ServerInterface
from oarlock.web.identity import UserAccount

_LONG_REQUEST = 4096  # characters of resources asked for
_GENERATED = "Generate a job key..."
_TRIES = 20  # how often the rules look again at a submission whose counts change all the time


@dataclass(frozen=True, slots=True)
class AcceptedSubmission:
    """Jobs that were stored, the first of them and all their numbers, what the rules said, and notes on the script."""

    first: Job
    ids: range
    messages: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_repeated: bool = False  # the same request made them before


@dataclass(frozen=True, slots=True)
class AdmissionInputs:
    """What the admission rules need besides the submission."""

    book: RuleSet
    context: RuleContext


def _is_long(body: SubmissionPayload) -> bool:
    """Whether a request is so long that to read it on the event loop would hold others up."""
    return sum(map(len, body.resources)) > _LONG_REQUEST


class SubmissionService:
    """Admits and stores submissions. `run` runs a site's Python rules; without it they refuse everything.

    Submissions that arrive while others are under way are looked up and stored together, so that a burst of them
    costs few transactions and few statements.
    """

    def __init__(self, core: ServerInterface, run: RunPythonRule | None = None) -> None:
        self._core, self._run = core, run
        self._existing = ClusterResourcesCache(core.config.scheduler_resource_order)
        self._rulebook = RuleSetCache(core.config.admission_rules_dir, core.config.admission_perl_rules)
        self._inputs_of: Batcher[Submission, AdmissionInputs] = Batcher(self._read_inputs_batch)
        self._unused_perl: tuple[int, ...] = ()  # rows that were switched off last
        self._one_by_one = KeyedLocks()
        self._slices = asyncio.Lock()
        self._removals: set[asyncio.Future[None]] = set()
        self._store: Batcher[submit.AdmittedSubmission, submit.StoredJobs] = Batcher(self._store_batch)

    @property
    def _now(self) -> int:
        return int(self._core.clock.now())

    @property
    def _config(self) -> Config:
        return self._core.config

    async def take(
        self, body: SubmissionPayload, account: UserAccount, *, request_id: str, login_host: str = ""
    ) -> AcceptedSubmission:
        """Store the jobs of a submission; a repeated request id returns the same jobs.

        `login_host`: where it was made, if that is proven.
        """
        try:
            return await self._admit_and_store(body, account, request_id, login_host)
        except CountsChanged:
            # A slow rule looked at counts that changed meanwhile: from now on one submission of this user at a time.
            async with self._one_by_one.of(account.name):
                return await self._admit_and_store(body, account, request_id, login_host, tries=_TRIES)

    async def _admit_and_store(
        self, body: SubmissionPayload, account: UserAccount, request_id: str, login_host: str, *, tries: int = 1
    ) -> AcceptedSubmission:
        try:
            key = await self._imported(body, account)
            admission = await self._admitted(body, account, self._now, login_host)
        except OarlockError:
            # Rules count the jobs that the same request has made already, and may not want more of them.
            done = await self._core.read(lambda tx: submit.earlier_result(tx, user=account.name, request_id=request_id))
            if done is None:
                raise
            return AcceptedSubmission(done.first, done.ids, is_repeated=True)
        admission = replace(admission, request_id=request_id)
        try:
            done = await self._store_with(key, admission)
            notes = admission.admitted.submission.notes
            return AcceptedSubmission(done.first, done.ids, admission.admitted.messages, notes, done.is_repeated)
        except CountsChanged:
            if tries <= 1:
                raise
        return await self._admit_and_store(body, account, request_id, login_host, tries=tries - 1)

    async def _imported(self, body: SubmissionPayload, account: UserAccount) -> ImportedKey | None:
        """Parse the key that was brought, in a thread: the first one loads a library."""
        text, public = body.import_key, body.public_key
        if text is None and public is not None:
            raise BadJobKey(
                "A public key alone is of no use to a job.", hint="Give the private key; its public half follows."
            )
        return None if text is None else await self._core.compute(lambda: parse_key(text, public), user=account.name)

    async def _store_with(self, key: ImportedKey | None, admission: submit.AdmittedSubmission) -> submit.StoredJobs:
        """Store an admitted submission; the key that was brought for it first: no job is without its key."""
        large = submit.is_large(admission.admitted.submission)
        if key is None:
            return await (self._store_large(admission) if large else self._store(admission))
        admission = replace(admission, job_key=JobKey(key.fingerprint, key.public, is_imported=True))
        async with self._core.keys.holding(key):
            return await (self._store_large(admission) if large else self._store(admission))

    async def try_out(self, body: SubmissionPayload, account: UserAccount) -> tuple[NewJob, tuple[str, ...]]:
        """Describe the (first) job that a submission would make, and what the rules say; nothing is stored."""
        now = self._now
        await self._imported(body, account)
        admitted = (await self._admitted(body, account, now)).admitted

        def describe(tx: Tx) -> NewJob:
            cluster = self._existing.now(tx)
            return submit.prepare(tx, admitted, cluster=cluster, config=self._config, now=now)

        return await self._core.read(describe, user=account.name), admitted.messages

    async def _read(self, body: SubmissionPayload, account: UserAccount, now: int, login_host: str) -> Submission:
        """Parse a submission; with `resubmit`, read back the job that is submitted again."""
        number = body.resubmit
        if number is not None:
            again = await self._core.read(
                lambda tx: submit.resubmission(tx, number, user=account.name, uid=account.uid, groups=account.groups)
            )
            warnings.refuse_beside_resubmit(body)
            return replace(again, submitted_from=body.submitted_from or again.submitted_from, login_host=login_host)

        def read() -> Submission:
            submission = submit.read(
                body, user=account.name, uid=account.uid, groups=account.groups, config=self._config, now=now
            )
            return replace(submission, login_host=login_host) if login_host else submission

        return await self._core.compute(read, user=account.name) if _is_long(body) else read()

    async def _admitted(
        self, body: SubmissionPayload, account: UserAccount, now: int, login_host: str = ""
    ) -> submit.AdmittedSubmission:
        """Apply the admission rules to a submission; the failure of a broken rule is recorded for the administrator."""
        submission = await self._read(body, account, now, login_host)
        inputs = await self._inputs_of(submission)
        book, context = inputs.book, inputs.context
        try:
            admitting = partial(admit.admit, book, submission, context, config=self._config, now=now, run=self._run)
            if _is_long(body):
                # In a thread, with a loop of its own: to check thousands of groups takes long.
                admitted = await self._core.compute(lambda: asyncio.run(admitting()), user=account.name)
            else:
                admitted = await admitting()
            frontend.check(admitted.submission, self._config)
            messages = warnings.warnings(admitted.submission, self._config)
            key = None
            if admitted.submission.use_key:  # asked for by the request, its script, a rule or the settings
                key = JobKey()
                messages += () if body.import_key else (_GENERATED,)
            if messages:
                admitted = replace(admitted, messages=admitted.messages + messages)
            return submit.AdmittedSubmission(admitted, counted=admit.counted(book, submission, context), job_key=key)
        except RuleFailed as failure:
            problem = failure
        await self._core.write(lambda tx: admit.note_failure(tx, problem, user=account.name, now=now))
        raise problem

    async def _read_inputs_batch(self, submissions: Sequence[Submission]) -> list[AdmissionInputs | Exception]:
        now = self._now
        inputs, unused_perl = await self._core.read(lambda tx: self._inputs(tx, submissions, now))
        if unused_perl and unused_perl != self._unused_perl:  # somebody put Perl into the table while the server runs
            self._unused_perl = unused_perl
            await self._core.write(lambda tx: stored_rules.disable_perl(tx, now=now))
        return inputs

    def _inputs(
        self, tx: Tx, submissions: Sequence[Submission], now: int
    ) -> tuple[list[AdmissionInputs | Exception], tuple[int, ...]]:
        """Read what rules ask about, and which rows of Perl have to be switched off.

        It is the same for all jobs of a user, but for reservations and those in containers.
        """
        book, cluster = self._rulebook.now(tx, now=now), self._existing.now(tx)
        by_key: dict[tuple[object, ...], AdmissionInputs] = {}
        answers: list[AdmissionInputs | Exception] = []
        for submission in submissions:
            key = submission.user, submission.reservation is None, parse_types(submission.types).inner
            if key not in by_key:
                by_key[key] = AdmissionInputs(book, admit.context(tx, submission, book, cluster, self._config))
            answers.append(by_key[key])
        return answers, book.unused_perl

    async def _store_large(self, admission: submit.AdmittedSubmission) -> submit.StoredJobs:
        """Store a large array in slices, one slice of all arrays at a time; what fails leaves nothing behind."""
        now = self._now
        begun = await self._core.write(
            lambda tx: submit.begin_large(tx, admission, cluster=self._existing.now(tx), config=self._config, now=now)
        )
        if isinstance(begun, submit.StoredJobs):
            return begun
        try:
            for places in begun.slices:
                async with self._slices:
                    change = partial(new_jobs.add_array_slice, incoming=begun.incoming, places=places)
                    await self._core.write_slice(change, user=admission.admitted.submission.user)
            return await self._core.write(lambda tx: submit.finish_large(tx, begun, now=now))
        except BaseException:
            await self._remove(begun.incoming.numbers)
            raise

    async def _remove(self, numbers: range) -> None:
        """Remove what was stored of an array, even if who asked for it is gone; `recover` does it after a crash."""
        removal = asyncio.ensure_future(self._core.write(lambda tx: new_jobs.remove_unfinished_array(tx, numbers)))
        self._removals.add(removal)
        removal.add_done_callback(self._removals.discard)
        await asyncio.shield(removal)

    async def _store_batch(
        self, admissions: Sequence[submit.AdmittedSubmission]
    ) -> Sequence[submit.StoredJobs | Exception]:
        now = self._now
        return await self._core.write(
            lambda tx: submit.submit_all(tx, admissions, cluster=self._existing.now(tx), config=self._config, now=now)
        )
