"""What a real OAR 2.5.9 printed, and how outputs are made comparable."""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.lang.cases import DATA

RECORDS = DATA / "oar2-golden"
DIFFERENCES = Path(__file__).parents[2] / "docs" / "reference" / "differences.md"

_HEAD = re.compile(r"\$ (.*)\n# user=(\w+) exit=(\d+)\n--- stdout\n")
_FORMAT = re.compile(r"-[DXYJ]$")
_EPOCH = re.compile(r"'?\b1[78]\d{8}\b'?")
_DATE = re.compile(r"\b20\d\d-\d\d-\d\d \d\d:\d\d:\d\d\b")
_DURATION = re.compile(r"\b\d+:\d\d:\d\d\b")
_EVENT = re.compile(r"^(DATE> (?:\[\d+\] )?[A-Z_]+):.*$", re.MULTILINE)
"""What is told of an event behind its type is ours."""
_KARMA = re.compile(r" \(Karma=[\d.-]+,quota_ok\)")
_ONLY_ONE_HAS = re.compile(
    r"(cm_availability|switch|(last_)?available_upto|scheduler_priority|last_job_date|checkpoint(_signal)?|notify|"
    r"environment|cpuset_name|memory_limit\w*)\b"
)
"""Fields that one of the two has, or whose value belongs to the day: what they hold has tests of its own."""


@dataclass(frozen=True)
class Record:
    """One command that was run on a real OAR."""

    name: str
    words: list[str]
    user: str
    code: int
    out: str
    err: str

    @property
    def form(self) -> str:
        """The format for programs that was asked for, such as `-J`; empty for people's."""
        return next((word for word in self.words if _FORMAT.match(word)), "")


def record(name: str) -> Record:
    """Read a record."""
    text = (RECORDS / f"{name}.txt").read_text()
    found = _HEAD.match(text)
    assert found is not None, f"{name} is not the record of a command"
    out, _, err = text[found.end() :].rpartition("--- stderr\n")
    words = [_later(word) for word in shlex.split(found[1].removeprefix("/usr/sbin/").removeprefix("time "))]
    return Record(name, words, found[2], int(found[3]), out, err)


def _later(word: str) -> str:
    """Move the date of a reservation from the day of the record into the future."""
    return word.replace("2026-11-", "2099-11-") if _DATE.fullmatch(word) else word


def comparable(text: str, form: str, *, names: Mapping[str, str]) -> Any:
    """Return an output without what differs between two days and two machines: ids, dates, hosts, order of keys.

    `names` are words to be replaced: accounts, hosts, directories and job numbers.
    """
    text = _renamed(text, names)
    text = _EVENT.sub(r"\1", _DATE.sub("DATE", text))
    text = _KARMA.sub("", _DURATION.sub("DURATION", _DATE.sub("DATE", _EPOCH.sub("1700000000", text))))
    if form == "-J":
        return _json(json.loads(text.partition("##########\n")[2].partition("\n\n###")[0] or text))
    text = re.sub(r"<!DOCTYPE.*?\]>\n", "", re.sub(r' memory_address="\w+"', "", text), flags=re.DOTALL)
    text = re.sub(r"'(\d+)'$", r"\1", text, flags=re.MULTILINE) if form == "-Y" else text
    lines = [_line(line) for line in text.splitlines() if " , " in line or not _ONLY_ONE_HAS.match(_key(line))]
    return sorted(line.rstrip(", ") for line in lines) if form else lines


def _renamed(text: str, names: Mapping[str, str]) -> str:
    def other(found: re.Match[str]) -> str:
        # In a column the blanks behind a word belong to it; elsewhere there is one at most.
        name = names[found[1]]
        return name.ljust(len(found[0])) if len(found[2]) > 1 else name + found[2]

    if not names:
        return text
    words = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"(?<![0-9A-Za-z])({words})(?![0-9A-Za-z])( *)", other, text)


def _key(line: str) -> str:
    found = re.match(r"""\s*(?:<item key=")?['"]?(\w+)""", line)
    return found[1] if found else ""


def _line(line: str) -> str:
    """Return a line with the parts that OAR prints in any order sorted, and conditions in one spelling."""
    if line.startswith("properties : "):
        pairs = line.removeprefix("properties : ").split(", ")
        return "properties : " + ", ".join(sorted(pair for pair in pairs if not _ONLY_ONE_HAS.match(pair)))
    if " = '" in line and " , " in line:
        return " , ".join(sorted(pair for pair in line.strip().split(" , ") if not _ONLY_ONE_HAS.match(pair)))
    if _key(line) == "properties":
        return condition(line)
    return line


def condition(text: str) -> str:
    """Return a condition without what means nothing: blanks, parentheses, backslashes of a format."""
    return re.sub(r"[\s()\\]", "", text)


def _json(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: condition(str(part)) if name == "properties" else _json(part)
            for name, part in value.items()
            if not _ONLY_ONE_HAS.match(name) and (part or name != "reserved_resources")
        }
    return value


def differing_on_purpose() -> set[str]:
    """Read which records the page of differences names as coming out otherwise."""
    _, _, section = DIFFERENCES.read_text().partition("## Record by record\n")
    rows = re.findall(r"^\| (`.*?) \|", section.partition("\n## ")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}
