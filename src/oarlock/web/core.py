"""What the API needs of the server behind it: protocols that the server's core, and a small one of tests, implement."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import StrEnum
from pathlib import Path
from typing import Protocol, TypeVar

from oarlock.config import Config
from oarlock.job.admission.private_key import ImportedKey
from oarlock.job.check.finding import CheckFinding
from oarlock.job.check.live import NodeAttempts
from oarlock.job.explain import ReservationOutcome, StartEstimate
from oarlock.job.monitoring import MonitoringStatus
from oarlock.job.reactor.passes import PassRecord
from oarlock.job.run.effects import ActionResult
from oarlock.measure.collect.questions import Question
from oarlock.measure.live import LiveUsage
from oarlock.measure.posting.receive import AgentReceiver
from oarlock.model.errors import OarlockError
from oarlock.model.plan import WaitReason
from oarlock.model.resource import NextState
from oarlock.model.source import SourceHealth
from oarlock.store.engine.database import Database
from oarlock.store.engine.tx import Tx
from oarlock.store.queries.job.files import StoredFile
from oarlock.store.queries.job.new_jobs import NewJob
from oarlock.web.identity import Caller, UserAccount


class SessionConnection(Protocol):
    """Frames to and from the client of a session. `is_local`: the kernel closes it when the client's process ends."""

    is_local: bool
    lost: asyncio.Event

    async def receive(self) -> bytes | None: ...
    def send(self, payload: bytes) -> None: ...
    async def close(self) -> None: ...


class Upgradable(Protocol):
    """An HTTP connection that can become one of frames."""

    def upgrade(self) -> SessionConnection:
        """Answer 101; nothing of HTTP follows."""
        ...

    def keep_open(self, seconds: float) -> None:
        """Keep the connection open for so long after the response."""
        ...


T = TypeVar("T")


class ClockInterface(Protocol):
    """The server's clock."""

    def now(self) -> float:
        """Return the present instant, in epoch seconds."""
        ...


class ServerStep(StrEnum):
    """What `oarnotify` can have done at once; otherwise each is done in its time."""

    SCHEDULE = "schedule"  # plan and start jobs
    WATCH = "watch"  # deadlines, kills that had no effect
    CHECK_NODES = "check nodes"
    APPLY_STATES = "apply states"


class CollectorInterface(Protocol):
    """The collector of samples."""

    @property
    def figures(self) -> Mapping[str, float]: ...
    @property
    def refused(self) -> Mapping[str, int]:
        """Samples by node that could be read, and that the collector did not take."""
        ...

    async def ask(self, question: Question) -> bytes: ...


class KeyStore(Protocol):
    """Where private keys that users bring are kept while their jobs live."""

    def holding(self, key: ImportedKey) -> AbstractAsyncContextManager[None]:
        """Store a key for the jobs that are stored inside; without a job it is removed again."""
        ...


class MeasuringInterface(Protocol):
    """What a server has that takes and shows measurements, with jobs of its own or without."""

    @property
    def state_dir(self) -> Path: ...
    @property
    def config(self) -> Config: ...
    @property
    def database(self) -> Database: ...
    @property
    def clock(self) -> ClockInterface: ...
    @property
    def live(self) -> LiveUsage: ...
    @property
    def collector(self) -> CollectorInterface: ...
    @property
    def agents(self) -> AgentReceiver: ...
    @property
    def changes(self) -> int:
        """How often the database was changed since the start: live pages look whether it grew."""
        ...

    @property
    def stopping(self) -> asyncio.Event: ...

    async def write(self, change: Callable[[Tx], T]) -> T: ...
    async def read(self, question: Callable[[Tx], T], *, user: str | None = None, key: Hashable = None) -> T: ...
    async def ask(self, question: Callable[[Tx], T], *, user: str, key: Hashable = None) -> T: ...
    async def compute(self, work: Callable[[], T], *, user: str) -> T: ...


class ServerInterface(MeasuringInterface, Protocol):
    """The server. Whoever calls these has asked `can` before; each does one transaction, then tells the nodes."""

    @property
    def hopeless(self) -> Mapping[int, str]: ...
    @property
    def passes(self) -> Sequence[PassRecord]: ...
    @property
    def keys(self) -> KeyStore: ...

    @property
    def source_health(self) -> Sequence[SourceHealth]:
        """How the sources of other systems fare that this server reads."""
        ...

    async def write_slice(self, change: Callable[[Tx], None], *, user: str) -> None: ...
    def wake_scheduler(self) -> None: ...
    def forget_failures(self) -> None: ...
    async def run_step(self, step: ServerStep) -> None: ...
    async def kill(self, ids: Sequence[int], *, by: str, exterminate: bool = False) -> Sequence[ActionResult]: ...
    async def checkpoint(self, ids: Sequence[int], *, by: str) -> Sequence[ActionResult]: ...
    async def signal(self, ids: Sequence[int], number: int, *, by: str) -> Sequence[ActionResult]: ...
    async def switch_besteffort(self, ids: Sequence[int], *, by: str) -> Sequence[ActionResult]: ...
    async def hold(self, ids: Sequence[int], *, by: str, running: bool = False) -> Sequence[ActionResult]: ...
    async def resume(self, ids: Sequence[int], *, by: str) -> Sequence[ActionResult]: ...
    async def why(self, job_id: int, *, user: str | None = None) -> WaitReason: ...
    async def when(self, new: NewJob, *, user: str | None = None) -> StartEstimate: ...
    async def answered(self, job_id: int, *, seconds: float = 10) -> ReservationOutcome: ...
    async def measure(self, nodes: Sequence[str], change: Mapping[str, object]) -> None: ...
    async def check_nodes_agree(self) -> tuple[Sequence[NodeAttempts], Sequence[CheckFinding]]: ...
    async def read_output(self, node: str, path: str, *, user: str, uid: int | None) -> tuple[str, int, str]: ...
    async def end_unknown(self, number: int) -> None: ...
    async def set_state(self, ids: Sequence[int], state: NextState) -> list[int]: ...
    async def store_file(
        self,
        account: UserAccount,
        pieces: AsyncIterator[bytes],
        *,
        size: int,
        md5sum: str | None,
        note: Callable[[Tx], None],
    ) -> StoredFile: ...
    async def monitor(self, job_id: int, period: int) -> MonitoringStatus: ...
    async def monitoring_status(self, job_id: int) -> MonitoringStatus: ...
    async def serve_session(self, caller: Caller | None, connection: SessionConnection) -> OarlockError | None: ...
    async def serve_desktop(self, caller: Caller, connection: SessionConnection) -> OarlockError | None: ...
