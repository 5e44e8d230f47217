"""Verbs about the site: which server this is, its queues, its accounts, and tokens to come in with."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

import oarlock
from oarlock.job import karma
from oarlock.job.admission.submit import DEFAULT_QUEUE
from oarlock.job.cluster import queue_states
from oarlock.lang.limits import short
from oarlock.model.errors import QueueInUse, TokenExists, UnknownPolicy, UnknownToken
from oarlock.model.snapshot import Queue
from oarlock.plan.policy import policies
from oarlock.store.engine.tx import Tx
from oarlock.store.queries import accounting, queues, tokens
from oarlock.web import token
from oarlock.web.context import Call, Nought
from oarlock.web.decode import Asked, Instant, Word
from oarlock.web.policy import May
from oarlock.web.registry import verb

_DAY_SECONDS = 86_400
_NAME = Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="1 to 64 letters, digits, `_`, `.` and `-`")
_POLICY = Meta(pattern=r"^[A-Za-z0-9_.+-]{1,64}$", description="1 to 64 letters, digits, `_`, `.`, `+` and `-`")


class Nothing(Asked):
    """Nothing has to be said."""


class Version(Struct, frozen=True):
    """Which server answers, and what time it thinks it is."""

    version: str
    cluster: str
    now: int


@verb(
    "version", "GET /version", may=May.ANYBODY, asks=Nothing, answers=Version,
    says="Say which server this is and what its clock shows.",
)  # fmt: skip
async def version(call: Call, _asked: Nothing) -> Version:
    """Answer without looking at the database, so that it answers when nothing else does."""
    return Version(oarlock.__version__, call.core.config.cluster_name, call.now)


class Queues(Struct, frozen=True):
    """Queues, those with the highest priority first."""

    queues: list[Queue]


@verb("queues.list", "GET /queues", may=May.USERS, asks=Nothing, answers=Queues, says="List the queues.")
async def list_queues(call: Call, _asked: Nothing) -> Queues:
    """Give all queues."""
    return Queues(await call.read(queues.listed))


class NewQueue(Asked):
    """A queue to be added; a higher priority is planned first, and the policy is a scheduler's name."""

    name: Annotated[str, _NAME]
    priority: Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] = 0
    policy: Annotated[str, _POLICY] = "oar_sched_gantt_with_timesharing"


@verb("queues.add", "POST /queues", may=May.ADMINS, asks=NewQueue, answers=Nought, says="Add a queue.")
async def add_queue(call: Call, asked: NewQueue) -> Nought:
    """Add an open queue."""
    if policies.find_policy(asked.policy) is None:
        known = ", ".join(policies.POLICIES)
        raise UnknownPolicy(
            f"There is no policy `{short(asked.policy)}`.",
            hint=f"Policies: {known}, depth-N, depth-N-sjbf; some take +multifactor or +predict.",
        )
    return await _then_schedule(
        call, await call.do(lambda tx: queues.add(tx, Queue(asked.name, asked.priority, asked.policy)))
    )


class SomeQueues(Asked):
    """Queues by name; without any, all of them."""

    names: Annotated[list[Word], Meta(max_length=1000)] | None = None


@verb(
    "queues.start", "POST /queues/start", may=May.ADMINS, asks=SomeQueues, answers=Nought,
    says="Let jobs of queues start again: of those named, or of all.",
)  # fmt: skip
async def start_queues(call: Call, asked: SomeQueues) -> Nought:
    """Open queues."""
    by, now = call.who.name, call.now
    started = await call.do(lambda tx: queue_states.start(tx, asked.names, by=by, now=now))
    call.core.forget_failures()
    return await _then_schedule(call, started)


@verb(
    "queues.stop", "POST /queues/stop", may=May.ADMINS, asks=SomeQueues, answers=Nought,
    says="Start no more jobs of queues: of those named, or of all.",
)  # fmt: skip
async def stop_queues(call: Call, asked: SomeQueues) -> Nought:
    """Close queues."""
    by, now = call.who.name, call.now
    stopped = await call.do(lambda tx: queue_states.stop(tx, asked.names, by=by, now=now))
    return await _then_schedule(call, stopped)


class OneQueue(Asked):
    """A queue by its name; `force` removes even the one of jobs that name none."""

    name: Word
    force: bool = False


@verb(
    "queues.remove", "DELETE /queues/{name}", may=May.ADMINS, asks=OneQueue, answers=Nought,
    says="Remove a queue in which no job is left.",
)  # fmt: skip
async def remove_queue(call: Call, asked: OneQueue) -> Nought:
    """Remove it."""
    if asked.name == DEFAULT_QUEUE and not asked.force:
        raise QueueInUse(
            f"Jobs that name no queue go to `{DEFAULT_QUEUE}`: without it they would be refused.",
            hint=f"`oarnotify --remove-queue {DEFAULT_QUEUE} --force` removes it all the same.",
        )
    return await call.do(lambda tx: queues.remove(tx, asked.name))


async def _then_schedule(call: Call, done: Nought) -> Nought:
    call.core.wake_scheduler()
    return done


class UpdateAccounts(Asked):
    """What to do besides adding jobs that ended: begin anew, or forget what is older than so many seconds."""

    reinitialize: bool = False
    delete_before: Instant | None = None


_MOST_BOOKINGS = 10_000


class BookingView(Struct, frozen=True):
    """What one job added to a row of the accounts: the row with its new sum, and whether the row is new."""

    job_id: int
    created: bool
    window_start: int
    window_stop: int
    user: str
    project: str
    queue: str
    type: str
    consumption: int


class Updated(Struct, frozen=True):
    """How many jobs were added, and how many rows there are; when old ones were to be forgotten, how many were.

    `bookings` are the first changes of the rows.
    """

    jobs: int
    rows: int
    bookings: list[BookingView]


@verb(
    "accounting.update", "POST /accounting", may=May.ADMINS, asks=UpdateAccounts, answers=Updated,
    says="Bring the accounts up to date; make them anew, or forget old ones.",
)  # fmt: skip
async def update_accounts(call: Call, asked: UpdateAccounts) -> Updated:
    """Work in several transactions, so that a long history does not keep others waiting."""
    window, now = call.core.config.accounting_window, call.now

    def prepare(tx: Tx) -> int:
        if asked.reinitialize:
            accounting.reinitialize(tx)
        return 0 if asked.delete_before is None else accounting.delete_before(tx, now - asked.delete_before)

    def account(tx: Tx) -> tuple[int, list[accounting.Booking]]:
        bookings: list[accounting.Booking] = []  # the writer may run this twice
        return accounting.update_accounts(tx, window=window, bookings=bookings), bookings

    async def act() -> Updated:
        forgotten, jobs = await call.core.write(prepare), 0
        bookings: list[accounting.Booking] = []
        while (added := await call.core.write(account))[0]:
            jobs += added[0]
            bookings += added[1][: _MOST_BOOKINGS - len(bookings)]
        rows = forgotten if asked.delete_before is not None else await call.read(accounting.count)
        return Updated(jobs, rows, [BookingView(one.job_id, one.created, *one.account) for one in bookings])

    return await call.act(act, Updated)


class ShowAccounts(Asked):
    """Whose accounts, and of which time."""

    user: Word | None = None
    project: Word | None = None
    since: Instant = 0
    until: Instant = 2**53


class AccountView(Struct, frozen=True):
    """Resource-seconds of a user, for a project, in a queue, in one window of time."""

    window_start: int
    window_stop: int
    user: str
    project: str
    queue: str
    type: Literal["USED", "ASKED"]
    consumption: int


class Accounts(Struct, frozen=True):
    """Rows of the accounts, oldest first; of one user also the karma of a job of each project, as of now."""

    rows: list[AccountView]
    karma: dict[str, float]


@verb(
    "accounting.show", "GET /accounting", may=May.USERS, asks=ShowAccounts, answers=Accounts,
    says="Show who used and asked for how much.",
)  # fmt: skip
async def show_accounts(call: Call, asked: ShowAccounts) -> bytes:
    """Give the rows as bytes: made where they were read."""
    config, now = call.core.config, call.now

    def read(tx: Tx) -> bytes:
        found = accounting.listed(tx, since=asked.since, until=asked.until, user=asked.user)
        rows = [one for one in found if asked.project is None or one.project == asked.project]
        own = {} if asked.user is None else karma.by_project(tx, config, asked.user, rows, now=now)
        return msgspec.json.encode(Accounts([AccountView(*one) for one in rows], own))  # type: ignore[arg-type]

    return await call.read(read)


class NewToken(Asked):
    """A token's name, and for how many days it is good."""

    name: Annotated[str, _NAME]
    days: Annotated[int, Meta(ge=1, le=366)] = 30


class Made(Struct, frozen=True):
    """A token, shown this once."""

    token: str


@verb(
    "tokens.add", "POST /tokens", may=May.AT_SOCKET, asks=NewToken, answers=Made,
    says="Make a token for the port; it is shown once. Only on the socket.",
)  # fmt: skip
async def add_token(call: Call, asked: NewToken) -> Made:
    """Keep only the token's hash, also in what is remembered of this request: asked again, it is not shown again."""
    made, now, user, uid = token.make(), call.now, call.who.name, call.who.account.uid
    own_hash = token.hash_of(made)

    def step(tx: Tx) -> str:
        tokens.forget(tx, now=now)
        if any(one.label == asked.name for one in tokens.of_user(tx, user)):
            raise _exists(asked.name)
        tokens.add(tx, tokens.StoredToken(own_hash, user, asked.name, now, now + asked.days * _DAY_SECONDS, uid))
        return own_hash

    if await call.change(step, str) != own_hash:
        raise _exists(asked.name)
    return Made(made)


def _exists(name: str) -> TokenExists:
    return TokenExists(
        f"The token `{name}` was made already; it was shown once.", hint="Revoke it and make another, or name it else."
    )


class TokenLine(Struct, frozen=True):
    """What can be said of a token after it was made."""

    name: str
    created: int
    expires: int


class Tokens(Struct, frozen=True):
    """One's own tokens, oldest first."""

    tokens: list[TokenLine]


@verb("tokens.list", "GET /tokens", may=May.USERS, asks=Nothing, answers=Tokens, says="List your tokens.")
async def list_tokens(call: Call, _asked: Nothing) -> Tokens:
    """Give the caller's tokens, without what they are."""
    found = await call.read(lambda tx: tokens.of_user(tx, call.who.name))
    return Tokens([TokenLine(one.label, one.created, one.expires) for one in found])


class OneToken(Asked):
    """A token by its name."""

    name: Word


@verb(
    "tokens.revoke", "DELETE /tokens/{name}", may=May.USERS, asks=OneToken, answers=Nought,
    says="Make one of your tokens worthless, at once.",
)  # fmt: skip
async def revoke_token(call: Call, asked: OneToken) -> Nought:
    """Revoke what bears that name."""
    user = call.who.name

    def step(tx: Tx) -> None:
        named = [one for one in tokens.of_user(tx, user) if one.label == asked.name]
        if not named:
            raise UnknownToken(f"You have no token `{short(asked.name)}`.", hint="`GET /tokens` lists yours.")
        for one in named:
            tokens.revoke(tx, user=user, token_hash=one.token_hash)

    return await call.do(step)
