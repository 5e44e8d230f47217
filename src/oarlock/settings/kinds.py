"""Kinds of values: how a setting's text becomes a value and back, and how to say what was expected."""

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

from oarlock.model.resource import ResourceOrder
from oarlock.settings import secret

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)
LONGEST_REQUEST = 4096
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class BadValue(ValueError):
    """A value with a story of its own: the text is the hint to show."""


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

    def __call__(self, kind: SettingKind[T], default: T, says: str, *, waits_for: str = "") -> T:
        """Declare a setting; `waits_for` marks a key of the manual that nothing reads yet, with what will."""
        about = {"section": self.title, "kind": kind, "default": default, "says": says, "waits_for": waits_for}
        return field(default_factory=lambda: default, metadata=about)


def whole(expected: str, *, least: int = 0, most: int = 2**31 - 1) -> SettingKind[int]:
    """Make the kind of whole numbers between two ends."""

    def read(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= most:
            raise ValueError(text)
        return int(text)

    return SettingKind(expected, read)


def choice(values: type[E], **stories: str) -> SettingKind[E]:
    """Make the kind of one word among few; `stories` are the hints for words that other systems have."""

    def read(text: str) -> E:
        if text in stories:
            raise BadValue(stories[text])
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


def _read_not_yet(text: str) -> bool:
    if _read_yes_no(text):
        raise BadValue("What it asks for is not here yet: write `no`, or leave the line out.")
    return False


def _read_request(text: str) -> str:
    if not text.strip() or len(text) > LONGEST_REQUEST:
        raise ValueError(text)
    return text


def _read_number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
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


def _read_order(text: str) -> tuple[ResourceOrder, ...]:
    return tuple(_read_one_order(part) for part in text.split(","))


def _read_one_order(text: str) -> ResourceOrder:
    match = re.fullmatch(r"\s*([A-Za-z_][A-Za-z0-9_]*)(?:\s+(ASC|DESC))?\s*", text, re.IGNORECASE)
    if match is None:
        raise ValueError(text)
    return ResourceOrder(match[1], descending=(match[2] or "ASC").upper() == "DESC")


def _joined(values: tuple[object, ...]) -> str:
    return " ".join(map(str, values))


def _show_targets(targets: Mapping[str, float]) -> str:
    return " ".join(f"{name}={percent!r}" for name, percent in targets.items())


ANY_TEXT: SettingKind[str] = SettingKind("a text", str)
WORD = matching("one word without blanks", r"\S+")
PERHAPS_WORD = matching("one word without blanks, or nothing", r"\S*")
COLUMN = matching("the name of a property (letters, digits, _)", r"[A-Za-z_][A-Za-z0-9_]*")
PERHAPS_COLUMN = matching("the name of a property (letters, digits, _), or nothing", r"([A-Za-z_][A-Za-z0-9_]*)?")
REQUEST: SettingKind[str] = SettingKind("a request as `-l` takes it", _read_request)
WORDS: SettingKind[tuple[str, ...]] = SettingKind(
    "words with blanks between", lambda text: tuple(text.split()), _joined
)
ADDRESSES: SettingKind[tuple[str, ...]] = SettingKind(
    "mail addresses with commas between", lambda text: tuple(text.replace(",", " ").split()), ",".join
)
COMMAND: SettingKind[tuple[str, ...]] = SettingKind(
    "a program and its arguments (no shell reads them)", lambda text: tuple(shlex.split(text)), shlex.join
)
YES_NO: SettingKind[bool] = SettingKind("`yes` or `no`", _read_yes_no, lambda value: "yes" if value else "no")
NOT_YET: SettingKind[bool] = SettingKind("`no`", _read_not_yet, lambda value: "yes" if value else "no")
SECONDS = whole("a whole number of seconds, 0 or more")
SOME_SECONDS = whole("a whole number of seconds, 1 or more", least=1)
COUNT = whole("a whole number, 0 or more")
PORT = whole("a port, 1 to 65535", least=1, most=65535)
LEVEL = whole("1 (what needs an administrator), 2 (also nodes and queues) or 3 (also jobs)", least=1, most=3)
NUMBER: SettingKind[float] = SettingKind("a number", _read_number, repr)
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
ORDER: SettingKind[tuple[ResourceOrder, ...]] = SettingKind(
    "columns with commas between, each with ASC or DESC", _read_order, lambda order: ", ".join(map(str, order))
)
SECRET: SettingKind[secret.Secret | None] = SettingKind(
    "file:/path of a file of mode 0600 that holds it", secret.read, lambda value: str(value or "")
)
