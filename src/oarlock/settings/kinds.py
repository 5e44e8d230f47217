"""Kinds of values: how a setting's text becomes a value and back; and the settings that are one word among few."""

import ipaddress
import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

from oarlock.lang import where as conditions
from oarlock.model.condition import Condition
from oarlock.model.errors import OarlockError
from oarlock.model.resource import ResourceOrder
from oarlock.settings import secret

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
LONGEST_REQUEST = 4096
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadValue(ValueError):
    """A value that is refused with a hint of its own."""


class NoEffect(ValueError):
    """A value that other systems know and that means nothing here: the text is the reason, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class SettingKind(Generic[T]):
    """A kind of value. `read` raises `ValueError`; reading what `show` gives yields the value again."""

    expected: str
    read: Callable[[str], T]
    show: Callable[[T], str] = str


@dataclass(frozen=True, slots=True)
class SettingSection:
    """A group of settings that belong together; calling it declares one of them."""

    title: str

    def __call__(self, kind: SettingKind[T], default: T, says: str) -> T:
        """Declare a setting."""
        about = {"section": self.title, "kind": kind, "default": default, "says": says}
        return field(default_factory=lambda: default, metadata=about)


def whole(expected: str, *, least: int = 0, most: int = 2**31 - 1) -> SettingKind[int]:
    """Make the kind of whole numbers between two ends."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return SettingKind(expected, read)


def choice(values: type[E], **hints: str) -> SettingKind[E]:
    """Make the kind of one word among few; `hints` are the hints for words that other systems have."""

    def read(text: str) -> E:
        if text in hints:
            raise BadValue(hints[text])
        return values(text)

    return SettingKind(" or ".join(f"`{value}`" for value in values), read)


def matching(expected: str, pattern: str) -> SettingKind[str]:
    """Make the kind of texts that match a pattern as a whole."""

    def read(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError(text)
        return text

    return SettingKind(expected, read)


def _read_yes_no(text: str) -> bool:
    if text.lower() not in {"yes", "true", "1", "no", "false", "0"}:
        raise ValueError(text)
    return text.lower() in {"yes", "true", "1"}


def _read_request(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_REQUEST:
        raise ValueError(text)
    return text


def _read_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _read_amount(text: str) -> float:
    value = _read_number(text)
    if value < 0:
        raise ValueError(text)
    return value


def _read_path(text: str) -> Path | None:
    path = Path(text)
    if text and not path.is_absolute():
        raise ValueError(text)
    return path if text else None


def _read_program(text: str) -> Path | None:
    if text.endswith(".pl"):
        # OAR's own scripts want a Perl structure; run by mistake, they would make every launch fail.
        raise NoEffect("what OAR's Perl script did is part of the node program")
    return _read_path(text)


def _read_networks(text: str) -> tuple[Network, ...]:
    return tuple(ipaddress.ip_network(word, strict=False) for word in text.split())


def _read_targets(text: str) -> Mapping[str, float]:
    targets: dict[str, float] = {}
    for word in text.split():
        name, _, percent = word.rpartition("=")
        if not name or name in targets or not 0 <= _read_number(percent) <= 100:
            raise ValueError(word)
        targets[name] = float(percent)
    return MappingProxyType(targets)


def _read_by_queue(text: str) -> Mapping[str, float]:
    """Read a number for every queue, or OAR's `{_ => 7200, besteffort => -1}` with `_` for all other queues."""
    if not text.startswith("{"):
        return MappingProxyType({"_": _read_number(text)})
    if not text.endswith("}"):
        raise ValueError(text)
    values: dict[str, float] = {}
    for entry in filter(None, map(str.strip, text[1:-1].split(","))):
        queue, arrow, number = entry.partition("=>")
        queue = queue.strip().strip("'\"")
        if not arrow or not queue or queue in values:
            raise ValueError(entry)
        values[queue] = _read_number(number)
    return MappingProxyType(values)


def _show_by_queue(values: Mapping[str, float]) -> str:
    if list(values) == ["_"]:
        return f"{values['_']:g}"
    return "{" + ", ".join(f"{queue} => {number:g}" for queue, number in values.items()) + "}"


def numbers(*names: str) -> SettingKind[Mapping[str, float]]:
    """Make the kind of numbers for some of these names."""

    def read(text: str) -> Mapping[str, float]:
        values: dict[str, float] = {}
        for word in text.split():
            name, _, number = word.partition("=")
            if name not in names or name in values:
                raise ValueError(word)
            values[name] = _read_number(number)
        return MappingProxyType(values)

    return SettingKind(f"name=number pairs with blanks between, for {', '.join(names)}", read, _show_targets)


@dataclass(frozen=True, slots=True)
class KeepAwake:
    """How many idle nodes of a class stay awake; no condition means all nodes."""

    condition: Condition | None
    count: int


_KEEP_AWAKE = re.compile(r"\s*(.+?)\s*:\s*(?:nodes\s*=\s*)?([0-9]{1,6})\s*(?:[&,]|$)")
_BARE_WORD = re.compile(r"(?<==)\s*([A-Za-z_][\w.-]*)\s*$")


def _read_keep_awake(text: str) -> tuple[KeepAwake, ...]:
    """Read a number, or classes as OAR writes them: `cluster='a':4 & besteffort='YES':2`, also with commas."""
    if re.fullmatch(r"[0-9]{1,6}", text.strip()):
        return (KeepAwake(None, int(text)),) if int(text) else ()
    classes, end = [], 0
    while end < len(text):
        match = _KEEP_AWAKE.match(text, end)
        if match is None:
            raise ValueError(text[end:])
        try:
            # OAR's own examples write `cluster=paradent`; a condition wants its text in quotes.
            condition = conditions.parse(_BARE_WORD.sub(r"'\1'", match[1]))
        except OarlockError as error:
            raise BadValue(str(error)) from error
        classes.append(KeepAwake(condition, int(match[2])))
        end = match.end()
    return tuple(classes)


def _show_keep_awake(classes: tuple[KeepAwake, ...]) -> str:
    shown = [
        str(kept.count) if kept.condition is None else f"{conditions.show(kept.condition)}:{kept.count}"
        for kept in classes
    ]
    return " & ".join(shown) or "0"


def _read_by_count(text: str) -> tuple[tuple[int, int], ...]:
    """Read `900`, or pairs such as `1:500 11:1000`: 500 for 1 to 10 nodes, 1000 for more."""
    if re.fullmatch(r"[0-9]{1,9}", text):
        return ((1, int(text)),)
    pairs: list[tuple[int, int]] = []
    for word in text.split():
        match = re.fullmatch(r"([0-9]{1,9}):([0-9]{1,9})", word)
        if match is None or (pairs and int(match[1]) <= pairs[-1][0]):
            raise ValueError(word)
        pairs.append((int(match[1]), int(match[2])))
    return tuple(pairs)


def _show_by_count(pairs: tuple[tuple[int, int], ...]) -> str:
    if len(pairs) == 1 and pairs[0][0] == 1:
        return str(pairs[0][1])
    return " ".join(f"{count}:{seconds}" for count, seconds in pairs)


def _read_order(text: str) -> tuple[ResourceOrder, ...]:
    return tuple(_read_one_order(part) for part in text.split(","))


def _read_one_order(text: str) -> ResourceOrder:
    match = re.fullmatch(r"\s*([A-Za-z_][A-Za-z0-9_]*)(?:\s+(ASC|DESC))?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(text)
    return ResourceOrder(match[1], descending=(match[2] or "ASC").upper() == "DESC")


def _read_levels(text: str) -> tuple[str, ...]:
    """Read `network_address/resource_id`; OAR's examples also begin or end with a stroke."""
    names = tuple(name.strip() for name in text.split("/") if name.strip())
    for name in names:
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise ValueError(name)
    return names


def _read_people(text: str) -> tuple[str, ...]:
    words = tuple(text.split())
    if any(not word.removeprefix("@") or "@" in word[1:] for word in words):
        raise ValueError(text)
    return words


def _read_leaders(text: str) -> Mapping[str, tuple[str, ...]]:
    """Read `astro=ada,bob bio=eve`: the leaders of projects."""
    leaders: dict[str, tuple[str, ...]] = {}
    for word in text.split():
        project, _, names = word.rpartition("=")
        users = tuple(names.split(","))
        if not project or project in leaders or not all(users):
            raise ValueError(word)
        leaders[project] = users
    return MappingProxyType(leaders)


def _show_leaders(leaders: Mapping[str, tuple[str, ...]]) -> str:
    return " ".join(f"{project}={','.join(users)}" for project, users in leaders.items())


def _read_exporters(text: str) -> tuple[str, ...]:
    return tuple(SiteExporter(word).value for word in dict.fromkeys(text.replace(",", " ").lower().split()))


def _read_databases(text: str) -> Mapping[str, str]:
    """Read `scratch=mysql://rbh@dbhost/rbh_scratch home=…`: the databases of file systems."""
    databases: dict[str, str] = {}
    for word in text.split():
        name, _, address = word.partition("=")
        if not re.fullmatch(r"[\w.-]{1,60}", name) or name in databases or "://" not in address:
            raise ValueError(word)
        databases[name] = address
    return MappingProxyType(databases)


def _show_databases(databases: Mapping[str, str]) -> str:
    return " ".join(f"{name}={address}" for name, address in databases.items())


def _joined(values: tuple[object, ...]) -> str:
    return " ".join(map(str, values))


def _show_targets(targets: Mapping[str, float]) -> str:
    return " ".join(f"{name}={percent!r}" for name, percent in targets.items())


ANY_TEXT: SettingKind[str] = SettingKind("a text", str)
WORD = matching("one word without blanks", r"\S+")
PERHAPS_WORD = matching("one word without blanks, or nothing", r"\S*")
HOURS = matching("two hours of the day as 9-17", r"(?:[01]?\d|2[0-3])-(?:[01]?\d|2[0-4])")
COLUMN = matching("the name of a property (letters, digits, _)", r"[A-Za-z_][A-Za-z0-9_]*")
PERHAPS_COLUMN = matching("the name of a property (letters, digits, _), or nothing", r"([A-Za-z_][A-Za-z0-9_]*)?")
URL = matching("an address that begins with http:// or https://, without a password, or nothing",
               r"(https?://[^\s/@?#]+([/?][^\s@#]*)?)?")  # fmt: skip
LEVELS: SettingKind[tuple[str, ...]] = SettingKind(
    "names of properties with / between, or nothing", _read_levels, "/".join
)
REQUEST: SettingKind[str] = SettingKind("a request as `-l` takes it", _read_request)
SAMPLE_SOURCES = (
    "cpu", "memory", "blockio", "pids", "pressure", "steps", "processes", "gpu", "machine", "disk", "filesystem",
    "network", "infiniband", "lustre", "cores", "perf", "rapl", "temperature", "ipmi",
)  # fmt: skip
"""What a node can measure without being told more: the names of `node/sources/assemble.py`."""


def _read_sources(text: str) -> tuple[str, ...]:
    words = tuple(text.split())
    if any(word.removeprefix("-") not in SAMPLE_SOURCES for word in words):
        raise ValueError(text)
    return words


SOURCES: SettingKind[tuple[str, ...]] = SettingKind(
    f"names with blanks between, each perhaps with a `-` before it, of {', '.join(SAMPLE_SOURCES)}",
    _read_sources,
    _joined,
)
WORDS: SettingKind[tuple[str, ...]] = SettingKind(
    "words with blanks between", lambda text: tuple(text.split()), _joined
)
PEOPLE: SettingKind[tuple[str, ...]] = SettingKind(
    "users, and groups with an @ before them, with blanks between", _read_people, _joined
)
LEADERS: SettingKind[Mapping[str, tuple[str, ...]]] = SettingKind(
    "pairs of a project and its leaders with blanks between, such as astro=ada,bob bio=eve",
    _read_leaders,
    _show_leaders,
)
EXPORTERS: SettingKind[tuple[str, ...]] = SettingKind(
    "`lustre`, `libvirtd`, both with a blank between, or nothing", _read_exporters, _joined
)
NO_DATABASES: Mapping[str, str] = MappingProxyType({})
DATABASES: SettingKind[Mapping[str, str]] = SettingKind(
    "pairs of a file system and its database with blanks between, such as scratch=mysql://rbh@dbhost/rbh_scratch",
    _read_databases,
    _show_databases,
)
ADDRESSES: SettingKind[tuple[str, ...]] = SettingKind(
    "mail addresses with commas between", lambda text: tuple(text.replace(",", " ").split()), ",".join
)
COMMAND: SettingKind[tuple[str, ...]] = SettingKind(
    "a program and its arguments (no shell reads them)", lambda text: tuple(shlex.split(text)), shlex.join
)
YES_NO: SettingKind[bool] = SettingKind("`yes` or `no`", _read_yes_no, lambda value: "yes" if value else "no")
SECONDS = whole("a whole number of seconds, 0 or more")
SOME_SECONDS = whole("a whole number of seconds, 1 or more", least=1)
COUNT = whole("a whole number, 0 or more")
PORT = whole("a port, 1 to 65535", least=1, most=65535)
WATTS = whole("a whole number of watts, 0 for nothing", most=1_000_000)
LEVEL = whole("1 (what needs an administrator), 2 (also nodes and queues) or 3 (also jobs)", least=1, most=3)
NUMBER: SettingKind[float] = SettingKind("a number", _read_number, repr)
AMOUNT: SettingKind[float] = SettingKind("a number, 0 or more", _read_amount, repr)
PATH: SettingKind[Path | None] = SettingKind("an absolute path, or nothing", _read_path, lambda path: str(path or ""))
PROGRAM: SettingKind[Path | None] = SettingKind(
    "an absolute path, or nothing; OAR's own Perl scripts are passed over", _read_program, PATH.show
)
NETWORKS: SettingKind[tuple[Network, ...]] = SettingKind(
    "networks such as 10.0.0.0/8, with blanks between", _read_networks, _joined
)
TARGETS: SettingKind[Mapping[str, float]] = SettingKind(
    "name=percent pairs (0 to 100) with blanks between", _read_targets, _show_targets
)
BY_QUEUE: SettingKind[Mapping[str, float]] = SettingKind(
    "a number, or one for each queue such as {_ => 7200, besteffort => -1}", _read_by_queue, _show_by_queue
)
KEEP_AWAKE: SettingKind[tuple[KeepAwake, ...]] = SettingKind(
    "a number, or classes of nodes such as cluster='a':4 & besteffort='YES':2", _read_keep_awake, _show_keep_awake
)
BY_COUNT: SettingKind[tuple[tuple[int, int], ...]] = SettingKind(
    "a whole number of seconds, or pairs such as 1:500 11:1000", _read_by_count, _show_by_count
)
ORDER: SettingKind[tuple[ResourceOrder, ...]] = SettingKind(
    "columns with commas between, each with ASC or DESC", _read_order, lambda order: ", ".join(map(str, order))
)
SECRET: SettingKind[secret.Secret | None] = SettingKind(
    "file:/path of a file of mode 0600 that holds it", secret.read, lambda value: str(value or "")
)


class DbType(StrEnum):
    """The database engines; the manual's spelling."""

    SQLITE = "sqlite"
    POSTGRESQL = "Pg"


class EnergySplit(StrEnum):
    """How the energy of a node is divided among its jobs."""

    CORES = "cores"  # by the cores that they hold
    CPU = "cpu"  # above what an idle node draws, by their CPU time


class SiteExporter(StrEnum):
    """Exporters of what is neither a job nor a node, each with a page of its own."""

    LUSTRE = "lustre"
    LIBVIRTD = "libvirtd"


class JobVisibility(StrEnum):
    """Whose jobs a user sees."""

    ALL = "all"  # everybody's, as in OAR
    PROJECT = "project"  # one's own, and those of projects that are called as one of one's groups
    OWN = "own"


class JobReportMails(StrEnum):
    """About which jobs of a cluster that others run their users are mailed when they ended."""

    NO = "no"
    FINDINGS = "findings"  # about which something was found
    ALL = "all"


class NodeTransport(StrEnum):
    """How a node is reached."""

    AUTO = "auto"  # this host's own names behind a pipe, all others by ssh
    SSH = "ssh"
    LOCAL = "local"  # every node name is this machine


class NodeAccess(StrEnum):
    """How the node program gets to a node."""

    PUSH = "push"  # it travels at each connection
    INSTALLED = "installed"  # the site installed it; a forced command starts it


class UnknownAttempts(StrEnum):
    """What becomes of jobs that nodes run and that a restored or new database does not know."""

    HOLD = "hold"  # their resources are held until they end
    END = "end"


class AfterError(StrEnum):
    """What becomes of jobs that depend on a job in Error."""

    RELEASE = "release"
    HOLD = "hold"


class PerlRules(StrEnum):
    """What becomes of Perl rules in the table that are not among the manual's examples."""

    DISABLE = "disable"  # switched off, with an event
    REFUSE = "refuse"  # every job is refused until somebody looks
