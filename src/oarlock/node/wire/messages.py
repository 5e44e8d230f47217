"""Requests to a node and its reports: the records that server and node share, and the MAC of a report.

Records are named tuples: the node loads no more of the standard library than it needs. HMAC-SHA256 goes without OpenSSL
where Python has a small module for it: what a supervisor maps, every fork pays for.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from typing import Any, NamedTuple

from oarlock.node.wire.channel import Body, encode_body

_BLOCK = 64


def _hash() -> Any:
    """Find SHA-256: its own module is named by the version of Python, and absent where a site allows only OpenSSL."""
    for name in ("_sha2", "_sha256", "hashlib"):
        try:
            return __import__(name).sha256
        except (ImportError, AttributeError):
            continue
    raise ImportError("this Python has no SHA-256")


_SHA256 = _hash()
# The two pads of RFC 2104, as tables for bytes.translate: one XOR per byte of the key.
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


def mac(text: str, secret: str) -> str:
    """Sign a text with a secret in hex; the signature is hex as well."""
    return mac_of_bytes(text.encode("utf-8", "surrogatepass"), secret)


def mac_of_bytes(data: bytes, secret: str) -> str:
    """Sign bytes with a secret in hex."""
    key = bytes.fromhex(secret)
    if len(key) > _BLOCK:
        key = _SHA256(key).digest()
    key = key.ljust(_BLOCK, b"\0")
    inner = _SHA256(key.translate(_INNER) + data).digest()
    return str(_SHA256(key.translate(_OUTER) + inner).hexdigest())


def fingerprint(secret: str) -> str:
    """Return the SHA-256 of a secret, which identifies it without revealing it."""
    return str(_SHA256(secret.encode("utf-8", "surrogatepass")).hexdigest())


def same_mac(left: str, right: str) -> bool:
    """Compare two signatures in constant time."""
    from hmac import compare_digest  # imported late: it maps OpenSSL, and supervisors never compare

    return compare_digest(left.encode("utf-8", "surrogatepass"), right.encode("utf-8", "surrogatepass"))


FIRST, OTHER = "first", "other"
"""Roles of a node in a job: the command runs on the first; the others only hold a place for it."""

GENERATED = "generated"
"""The `key` of a launch whose pair is made on the first node, which keeps it."""

# Why a request was refused, as one word the server can act on.
SEEN = "seen"  # this attempt, or a later one of the job, was here before
TAKEN = "taken"  # an attempt of the same number is here that another database, or an older state of it, began
REBOOTED = "rebooted"  # the node was started again since the attempt was written down
UNKNOWN = "unknown"  # no such attempt here
NOT_NOW = "not-now"  # the attempt is in no state for this
BAD = "bad"  # the request makes no sense

# How an attempt ended.
EXITED = "exited"  # the command ran and ended by itself
KILLED = "killed"  # it was ended by a request
WALLTIME = "walltime"  # its time was over
FAILED = "failed"  # the command never ran; `event` says why
CLEANED = "cleaned"  # a place on another node than the first, given back
LOST = "lost"  # the supervisor vanished: how the command ended is not known

# Why a program of the site failed.
UNUSABLE = "unusable"  # it is missing, others can write it, or it cannot be executed
EXIT = "exit"  # it ran and did not return 0
TIMEOUT = "timeout"  # it ran and did not end in time

_NUMBERS = ("job", "attempt", "walltime", "grace", "checkpoint", "checkpoint_signal", "start_timeout",
            "stage_in_size", "stage_in_most", "stage_in_timeout", "stage_out_most", "stage_out_timeout")  # fmt: skip
_TEXTS = ("secret", "boot", "user", "command", "directory", "stdout", "stderr", "name", "project", "generation",
          "stage_in", "key")  # fmt: skip
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@+-]*\$?")
SHA256 = re.compile("[0-9a-f]{64}")
"""The name of a file by its content."""


class NodeRequestRefused(Exception):
    """A request that the node will not carry out: one word for programs, a sentence for people."""

    def __init__(self, word: str, says: str) -> None:
        super().__init__(says)
        self.word = word

    def body(self) -> Body:
        """Return it as the body of a message."""
        return {"refused": self.word, "says": str(self)}


class CgroupLimits(NamedTuple):
    """What a job may use of one node. `None` is no limit."""

    cpus: tuple[int, ...] = ()  # as the site numbers them
    memory: int | None = None  # bytes
    pids: int | None = None
    deny_devices: tuple[str, ...] = ()  # device files of what the job was not given


class SiteHooks(NamedTuple):
    """Programs of the site that run around a job on its first node."""

    prologue: str = ""
    epilogue: str = ""
    timeout: int = 60  # seconds for each
    manager: str = ""  # takes the place of the cgroup step
    suspend: str = ""  # takes the place of the freezer


class ResourceLines(tuple[dict[str, Any], ...]):  # noqa: SLOT001 - the text is kept
    """The resources of a job: the same for all its nodes, so that they are encoded once."""

    @cached_property
    def text(self) -> str:
        """Return them as JSON."""
        return encode_body(self)


class Launch(NamedTuple):
    """One attempt to run a job on one node; (job, attempt) is never used twice."""

    job: int
    attempt: int
    secret: str  # hex; reports of this attempt are signed with it
    boot: str  # boot id of the node when the attempt was written down; empty: not known yet
    user: str
    command: str
    uid: int | None = None  # as the server knows the user; another number here is refused
    role: str = FIRST
    directory: str = "/"
    stdout: str = ""
    stderr: str = ""
    walltime: int = 3600  # seconds
    grace: int = 20  # seconds between TERM and KILL
    checkpoint: int = 0  # seconds before the end of the walltime; 0: no signal
    checkpoint_signal: int = 12
    limits: CgroupLimits = CgroupLimits()
    hooks: SiteHooks = SiteHooks()
    name: str = ""
    project: str = "default"
    array_id: int = 0
    array_index: int = 1
    key: str = ""  # GENERATED, or the fingerprint of one that came before the launch; empty: the job has none
    nodes: tuple[str, ...] = ()  # lines of the node file
    resources: tuple[dict[str, Any], ...] = ()  # lines of the property file
    gpus: tuple[int, ...] = ()  # its own, as the site numbers them
    other_gpus: tuple[int, ...] = ()  # those of the node that are not its own
    environment: dict[str, str] = {}  # noqa: RUF012 - a default of a named tuple, never written to
    start_timeout: int = 60  # seconds from the end of the prologue to the user's command
    generation: str = ""  # of the database that wrote the attempt down
    interactive: bool = False  # no command: the job begins and ends with its main session
    stage_in: str = ""  # SHA-256 of an archive that was brought here, to be unpacked below the directory first
    stage_in_size: int = 0  # bytes
    stage_in_most: int = 0  # bytes that it may unpack to
    stage_in_timeout: int = 600  # seconds for that
    stage_out_most: int = 0  # bytes of files that are packed when it is over; 0: the node brings nothing back
    stage_out_timeout: int = 600  # seconds for that

    @property
    def cpuset(self) -> str:
        """The name of its cgroup."""
        return f"{self.user}_{self.job}"

    @property
    def has_key(self) -> bool:
        """Whether the private key of the job is on this node."""
        return bool(self.key) and (self.key != GENERATED or self.role == FIRST)

    def body(self) -> Body:
        """Return it as the body of a message."""
        return {**self._asdict(), "limits": self.limits._asdict(), "hooks": self.hooks._asdict()}

    def request(self) -> bytes:
        """Return the request to launch it, encoded."""
        body = {"verb": "launch", **self.body()}
        if not isinstance(self.resources, ResourceLines):
            return encode_body(body).encode()
        del body["resources"]
        return f'{encode_body(body)[:-1]},"resources":{self.resources.text}}}'.encode()


def parse_launch(body: Body) -> Launch:
    """Parse a launch; raise `NodeRequestRefused` for unknown fields, odd names and wrong types."""
    try:
        limits = _record(CgroupLimits, body.get("limits", {}))
        hooks = _record(SiteHooks, body.get("hooks", {}))
        fields = {name: value for name, value in body.items() if name != "verb"}
        launch: Launch = _record(Launch, {**fields, "limits": limits, "hooks": hooks})
    except TypeError as error:
        raise NodeRequestRefused(BAD, f"the launch cannot be read: {error}") from error
    _check(launch)
    return launch


def _check(launch: Launch) -> None:
    for name in _NUMBERS:
        if type(getattr(launch, name)) is not int:
            raise NodeRequestRefused(BAD, f"{name} is {getattr(launch, name)!r}, not a number")
    for name in _TEXTS:
        if type(getattr(launch, name)) is not str:
            raise NodeRequestRefused(BAD, f"{name} is {getattr(launch, name)!r}, not a text")
    if launch.job <= 0 or launch.attempt <= 0:
        raise NodeRequestRefused(BAD, f"job {launch.job}, attempt {launch.attempt}: both must be above 0")
    if not _NAME.fullmatch(launch.user):
        raise NodeRequestRefused(BAD, f"{launch.user!r} is not the name of a user")
    if launch.stage_in and not SHA256.fullmatch(launch.stage_in):
        raise NodeRequestRefused(BAD, f"{launch.stage_in!r} is not the sum of an archive")
    if launch.role not in {FIRST, OTHER}:
        raise NodeRequestRefused(BAD, f"{launch.role!r} is no role of a node")


def _record(kind: Any, body: Body) -> Any:
    """Make a named tuple; lists become tuples, as records hold no others."""
    return kind(**{name: tuple(value) if type(value) is list else value for name, value in body.items()})


class Report(NamedTuple):
    """How an attempt ended on one node. `None` is "not known", never 0."""

    job: int
    attempt: int
    node: str
    boot: str
    outcome: str  # EXITED, KILLED, WALLTIME, FAILED, CLEANED, LOST
    status: int | None = None  # raw wait status of the command
    event: str = ""  # the manual's name of what went wrong first
    says: str = ""
    events: tuple[tuple[str, str], ...] = ()  # what else happened: (event, sentence)
    started: float | None = None  # epoch seconds by this node's clock: the user's code began
    ended: float | None = None
    ran: float | None = None  # seconds between the two by a clock that never jumps, suspension included
    suspended: float = 0.0  # seconds of it that the job was suspended
    counters: dict[str, float] = {}  # noqa: RUF012 - as above
    causes: dict[str, str] = {}  # noqa: RUF012 - event of a program of the site → why it failed (UNUSABLE, …)
    stage_out: str = ""  # SHA-256 of the archive with what the job wrote, which waits in the spool
    stage_out_size: int = 0  # bytes


def sign_report(report: Report, secret: str) -> Body:
    """Sign a report with the secret of its attempt. The JSON text itself is signed, so it need not be normalised."""
    text = encode_body(report._asdict())
    return {"job": report.job, "attempt": report.attempt, "report": text, "mac": mac(text, secret)}


def verify_report(body: Body, secret: str) -> Report | None:
    """Verify and parse a signed report; `None` if the signature or the attempt is wrong."""
    text, signature = body.get("report"), body.get("mac")
    if not (isinstance(text, str) and isinstance(signature, str) and same_mac(signature, mac(text, secret))):
        return None
    try:
        report: Report = _record(Report, json.loads(text))
    except (ValueError, TypeError):
        return None
    if (report.job, report.attempt) != (body.get("job"), body.get("attempt")):
        return None
    return report._replace(events=tuple((str(event), str(says)) for event, says in report.events))


class NodeSettings(NamedTuple):
    """Settings that the server sends to a node program when it starts it."""

    node: str  # its network address
    spool: str  # directory of the spool, mode 0700
    runtime: str  # directory of node files, mode 0755
    lowest_uid: int = 1000
    silence: int = 120  # seconds without a word from the server after which the program ends
    idle: int = 8  # supervisors kept for the next job, however long it takes
    rest: float = 30.0  # seconds for which all others are kept
    sample_period: float = 0  # seconds between two samples of its jobs; 0: none are taken
    sample_sources: tuple[str, ...] = ()  # besides the usual ones; with a `-` before it, one is left out
    check: tuple[str, ...] = ()  # programs of the site that launches will name; what is wrong with them is in the hello
    instance: str = ""  # the identity of the server's database
    spool_key: str = ""  # hex; signs what is in the spool, and is never written on the node
    files_kept: int = 6 * 86_400  # seconds for which an archive of stage-in is kept after it was last used
    pretended: bool = False  # one of several nodes of this machine: CPU numbers are taken modulo the CPUs there are
    programs: tuple[str, ...] | None = (
        None  # of the site, that a launch may name; `None`: any that root alone can write
    )
    debug: bool = False  # whether supervisors keep a log in the spool
    work: str = ""  # of a desktop: the directory below which each job has one of its own, whatever it asked for


def check_site_programs(launch: Launch, programs: tuple[str, ...] | None) -> None:
    """Refuse a launch that names a program of the site which this node was not installed with."""
    hooks = launch.hooks
    for path in (hooks.prologue, hooks.epilogue, hooks.manager, hooks.suspend):
        if path and programs is not None and path not in programs:
            raise NodeRequestRefused(UNUSABLE, why_not_permitted(path))


def why_not_permitted(path: str) -> str:
    """Return why an installed node does not run a program."""
    return (
        f"{path} is not among the programs that were permitted when this node was installed: run `oarlock node install`"
        " with the present settings and put the new file on the nodes"
    )


def parse_settings(body: Body) -> NodeSettings:
    """Parse the settings; raise `NodeRequestRefused` for a node name that must not become a path."""
    settings: NodeSettings = _record(NodeSettings, body)
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.:-]*", settings.node):
        raise NodeRequestRefused(BAD, f"{settings.node!r} is not the name of a node")
    return settings
