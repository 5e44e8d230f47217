"""The context of one request: the caller, and how the handler of a verb reads and writes the database."""

from collections.abc import AsyncIterator, Awaitable, Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec
from msgspec import Struct

from oarlock.job.admission.payload import SubmissionPayload, without_keys
from oarlock.model.errors import BadRequest, NotSignedIn, UnknownJob
from oarlock.store.engine import past_jobs
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job import job_pages
from oarlock.store.queries.job.job_pages import JobSight
from oarlock.store.queries.users import user_records
from oarlock.store.queries.users.user_records import AuditEntry
from oarlock.web.core import ServerInterface
from oarlock.web.identity import Caller, UserAccount
from oarlock.web.policy import AccessPolicy, Permission
from oarlock.web.submission_service import SubmissionService

T = TypeVar("T")

LONGEST_ANSWER = 64 * 1024
"""Bytes of the longest response that is kept for a repeated request, where acting again does no harm."""

_LONGEST_NOTED = 1000  # characters of a request in the audit


class EmptyResponse(Struct, frozen=True):
    """A response without fields: it was done."""


@dataclass(frozen=True, slots=True)
class DeferredResponse:
    """The response of a verb that waits for the scheduler: `finish` is awaited after its slot was released."""

    finish: Callable[[], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class FileDownload:
    """The response of a verb that is a file: sent piece by piece, deleted afterwards if it is `temporary`."""

    path: str
    media_type: str
    name: str
    temporary: bool = False


@dataclass(frozen=True, slots=True)
class ContentDownload:
    """The response of a verb that is a small file, made for whoever asks and never written down."""

    content: bytes
    media_type: str
    name: str


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What the handler of a verb receives besides the request. `behalf`: in whose name an administrator asks."""

    core: ServerInterface
    submissions: SubmissionService
    policy: AccessPolicy
    verb: str
    caller: Caller | None
    request_id: str = ""
    behalf: UserAccount | None = None
    request: Struct | None = None
    refusals: list[tuple[Struct, str]] = field(default_factory=list)  # refused parts of the request, and why
    upload: AsyncIterator[bytes] | None = None
    content: bytes = b""  # the body of a verb whose body are bytes

    @property
    def user(self) -> Caller:
        """The caller, who is signed in: the dispatcher lets nobody else reach a verb that reads this."""
        if self.caller is None:
            raise NotSignedIn("This server does not know who you are.")
        return self.caller

    @property
    def account(self) -> UserAccount:
        """The account in whose name the request is carried out."""
        return self.behalf or self.user.account

    @property
    def uploaded(self) -> AsyncIterator[bytes]:
        """The body of a verb that uploads, piece by piece."""
        if self.upload is None:
            raise BadRequest("There is no file in this request.", hint="Send it as the body.")
        return self.upload

    @property
    def now(self) -> int:
        """The present instant, in epoch seconds."""
        return int(self.core.clock.now())

    def demand(self, permission: Permission, owner: str | None = None) -> None:
        """Raise the refusal if the caller does not have a permission."""
        if refusal := self.policy.can(self.caller, permission, owner):
            raise refusal

    @property
    def sight(self) -> JobSight | None:
        """Whose jobs the caller sees; None: everybody's."""
        return self.policy.sight(self.caller)

    @property
    def advised(self) -> JobSight | None:
        """Whose curves, findings, sums and energy the caller sees, besides one's own; None: everybody's."""
        return None if self.user.staff else JobSight(self.user.name, self.user.leads)

    def only_own(self, project: str | None) -> bool:
        """Return whether jobs of a project (None: of all) are left out of sums because the caller may not see them."""
        return self.advised is not None and project not in self.user.leads

    def check_seen(self, tx: Tx, job_id: int) -> None:
        """Raise `UnknownJob` for a job that the caller does not see: as if it did not exist."""
        if job_id not in job_pages.seen(tx, self.sight, [job_id]):
            raise UnknownJob(job_id)

    @property
    def reader(self) -> str:
        """The user on whose budget the request reads; all callers without a name share one."""
        return "" if self.caller is None else self.caller.name

    def key(self, *, private: bool) -> Hashable:
        """Return the key of this request: callers with the same key may share one response.

        A `private` response depends on what the caller may see: everything for administrators, else its own jobs.
        """
        private = private or self.sight is not None
        sees = ("all" if self.user.admin else f"own of {self.user.name}") if private else "what everybody may"
        return self.verb, sees, msgspec.json.encode(self.request)

    async def read(self, question: Callable[[Tx], T], key: Hashable = None) -> T:
        """Read from one snapshot of the database; `question` runs in another thread."""
        return await self.core.read(question, user=self.reader, key=key)

    async def read_past(self, question: Callable[[Tx], T]) -> T:
        """Read as `read` does; a job that is unknown to the database is looked for in the archives of purged jobs."""
        try:
            return await self.read(question)
        except UnknownJob as unknown:
            refused = unknown

        def look() -> T:
            for file in past_jobs.archives(self.core.state_dir):
                with suppress(UnknownJob), past_jobs.open_archive(file) as tx:
                    return question(tx)
            raise refused

        return await self.core.compute(look, user=self.reader)

    @property
    def has_past(self) -> bool:
        """Whether jobs were purged into archives."""
        return bool(past_jobs.archives(self.core.state_dir))

    async def look_up_past(self, question: Callable[[Tx], T]) -> list[T]:
        """Read from every archive of purged jobs, the newest first."""
        files = past_jobs.archives(self.core.state_dir)

        def look() -> list[T]:
            answers = []
            for file in files:
                with past_jobs.open_archive(file) as tx:
                    answers.append(question(tx))
            return answers

        return await self.core.compute(look, user=self.reader) if files else []

    async def change(self, step: Callable[[Tx], T], kind: type[T]) -> T:
        """Run `step` in one transaction, once: a repeated request id returns the result of the first time.

        The writer may run the step twice, so it must do nothing but use its transaction. `kind` is the result's type.
        """

        def once(tx: Tx) -> T:
            stored = self._stored_response(tx)
            if stored is not None:
                return msgspec.json.decode(stored, type=kind)
            value = step(tx)
            self._remember(tx, value, self.request)
            return value

        return await self.core.write(once)

    async def do(self, step: Callable[[Tx], None]) -> EmptyResponse:
        """Run a step without a result, once, as `change` does."""

        def run(tx: Tx) -> EmptyResponse:
            step(tx)
            return EmptyResponse()

        return await self.change(run, EmptyResponse)

    async def act(
        self, action: Callable[[], Awaitable[T]], kind: type[T], about: Callable[[T], Struct | None] | None = None
    ) -> T:
        """Run an idempotent action that has transactions of its own; a repeated request id returns the same result.

        The action runs again if the server died before its result was stored, or if the result was too long to be
        kept. `about` returns the request to write into the audit where the original one does not name what it
        concerned; None if nothing was done.
        """
        stored = await self.core.read(self._stored_response)
        if stored is not None:
            return msgspec.json.decode(stored, type=kind)
        value = await action()

        def remember(tx: Tx) -> None:
            if self._stored_response(tx) is None:
                self._remember(tx, value, about(value) if about else self.request, longest=LONGEST_ANSWER)

        await self.core.write(remember)
        return value

    def _stored_response(self, tx: Tx) -> str | None:
        return user_records.answer_of(tx, user=self.user.name, request_id=self.request_id, verb=self.verb)

    def _remember(self, tx: Tx, value: object, request: Struct | None, *, longest: int | None = None) -> None:
        response = msgspec.json.encode(value).decode()
        if longest is None or len(response) <= longest:
            user_records.remember_answer(
                tx, user=self.user.name, request_id=self.request_id, verb=self.verb, answer=response, at=self.now
            )
        if request is not None:
            self.note(tx, request)

    def note(self, tx: Tx, request: Struct | None = None) -> None:
        """Write the request (or another that describes the change better) into the audit."""
        user_records.add_audit(tx, entry(self.user, self.behalf, self.verb, request or self.request, now=self.now))

    async def ask(self, question: Callable[[Tx], T], key: Hashable = None) -> T:
        """Run a query with a condition that the caller wrote, with the protections of `Database.ask`."""
        return await self.core.ask(question, user=self.reader, key=key)


def entry(
    caller: Caller | None,
    behalf: UserAccount | None,
    verb: str,
    request: Struct | None,
    *,
    now: int = 0,
    refused: str = "",
) -> AuditEntry:
    """Return the audit entry of a request; a very long request is cut."""
    if isinstance(request, SubmissionPayload):
        request = without_keys(request)
    text = "" if request is None else msgspec.json.encode(request).decode()
    name, channel = (caller.name, caller.channel) if caller else ("", "network")
    return AuditEntry(now, name, behalf.name if behalf else "", verb, channel, text[:_LONGEST_NOTED], refused)
