"""The desk where submissions are taken: what the rules and the resources say about them."""

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec import structs

from oarlock.config import Config
from oarlock.job import admit, submit
from oarlock.job.admit import Admitted, Run
from oarlock.job.body import Body
from oarlock.job.existing import Existing
from oarlock.job.rulebook import Book, Rulebook
from oarlock.lang.rules import Context
from oarlock.model.errors import RuleFailed
from oarlock.model.job import Job
from oarlock.model.submission import Submission
from oarlock.store.jobs import New
from oarlock.store.tx import Tx
from oarlock.web.core import Core
from oarlock.web.who import Account


@dataclass(frozen=True, slots=True)
class Taken:
    """Jobs that were stored, and what the rules said about them."""

    jobs: Sequence[Job]
    messages: tuple[str, ...] = ()


class Desk:
    """Takes submissions for one server. `run` runs a site's Python rules; without it they refuse everything."""

    def __init__(self, core: Core, run: Run | None = None) -> None:
        self._core, self._run = core, run
        self._existing = Existing(core.config.scheduler_resource_order)
        self._rulebook = Rulebook(core.config.admission_rules_dir)

    @property
    def _config(self) -> Config:
        return self._core.config

    async def take(self, body: Body, account: Account, *, request_id: str) -> Taken:
        """Store the jobs that are asked for; asked again with the same id, give them again."""
        now = self._core.clock.now()
        if body.resubmit is not None:
            return Taken(await self._again(body.resubmit, account, now, request_id))
        admitted = await self._admitted(body, account, now, request_id=request_id)
        if isinstance(admitted, Taken):
            return admitted

        def store(tx: Tx) -> list[Job]:
            return submit.submit(
                tx, admitted, existing=self._existing, config=self._config, now=now, request_id=request_id
            )

        return Taken(await self._core.write(store), admitted.messages)

    async def try_out(self, body: Body, account: Account) -> tuple[New, tuple[str, ...]]:
        """Describe the (first) job that a submission would make, and what the rules say; nothing is stored."""
        now = self._core.clock.now()
        admitted = await self._admitted(body, account, now)
        assert isinstance(admitted, Admitted)  # noqa: S101  (without a request id nothing was answered before)

        def describe(tx: Tx) -> New:
            cluster = self._existing.now(tx)
            return submit.prepare(tx, admitted, cluster=cluster, config=self._config, now=now)[0]

        return await self._core.read(describe), admitted.messages

    async def _again(self, job_id: int, account: Account, now: int, request_id: str) -> list[Job]:
        def store(tx: Tx) -> list[Job]:
            return submit.resubmit(tx, job_id, user=account.name, now=now, request_id=request_id)

        return await self._core.write(store)

    async def _admitted(
        self, body: Body, account: Account, now: int, *, request_id: str | None = None
    ) -> Admitted | Taken:
        """Let the rules look at a submission, unless it was answered before: they would count its own jobs."""
        submission = submit.read(
            structs.asdict(body), user=account.name, groups=account.groups, config=self._config, now=now
        )  # fmt: skip
        done, book, known = await self._core.read(lambda tx: self._look(tx, submission, request_id))
        if done is not None:
            return Taken(done)
        try:
            return await admit.admit(book, submission, known, config=self._config, now=now, run=self._run)
        except RuleFailed as failure:
            problem = failure
        await self._core.write(lambda tx: admit.note(tx, problem, user=account.name, now=now))
        raise problem

    def _look(self, tx: Tx, submission: Submission, request_id: str | None) -> tuple[list[Job] | None, Book, Context]:
        book = self._rulebook.now(tx)
        known = admit.context(tx, submission, book, self._existing.now(tx), self._config)
        return submit.answered(tx, user=submission.user, request_id=request_id), book, known
