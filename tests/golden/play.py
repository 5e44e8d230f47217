"""The recorded commands, run again on a live instance, each held against its record."""

import difflib
import re
from dataclasses import dataclass, field, replace

from tests.golden.live import Ran, Site
from tests.golden.records import Record, comparable, record

_OF_JOBS = ("oarsub", "oarstat", "oardel", "oarhold", "oarresume", "oarwalltime")
_NAMES_A_JOB = ("-a", "-C", "--resubmit")
"""Options of `oarsub` behind which the number of a job stands."""
_JOB = re.compile(r"^OAR_JOB_ID=(\d+)$", re.MULTILINE)


@dataclass
class Play:
    """Which of our jobs is which of the recorded ones, and what came out otherwise than recorded."""

    site: Site
    numbers: dict[int, int] = field(default_factory=dict)
    differing: dict[str, str] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def job(self, recorded: int) -> int:
        """Return our number of a recorded job."""
        return self.numbers[recorded]

    def submit(self, recorded: int, user: str, *words: str) -> int:
        """Submit a job that stands for a recorded one."""
        ran = self.site.run(user, "oarsub", *words)
        [number] = _JOB.findall(ran.out) or [ran.err]
        self.numbers[recorded] = int(number)
        return self.numbers[recorded]

    def compare(self, *names: str, without: tuple[int, ...] = (), hidden: str = "") -> None:
        """Run recorded commands, and note those that end or print otherwise.

        `without`: jobs whose lines are left out of the record; `hidden`: a field that is empty here.
        """
        for name in names:
            told = record(name)
            shown = re.sub(rf"^(    {hidden} = ).+$", r"\1", told.out, flags=re.MULTILINE) if hidden else told.out
            self.one(replace(told, out=shown), without)

    def one(self, told: Record, without: tuple[int, ...]) -> Ran:
        """Run one recorded command."""
        of_jobs = told.words[0] in _OF_JOBS
        before = ["", *told.words]
        words = [
            self._ours(word, of_jobs=of_jobs and (told.words[0] != "oarsub" or option in _NAMES_A_JOB))
            for option, word in zip(before, told.words, strict=False)
        ]
        ran = self.site.run(told.user, words[0], *words[1:])
        made = [int(number) for number in _JOB.findall(ran.out)]
        self.numbers.update(zip(map(int, _JOB.findall(told.out)), made, strict=False))
        self.seen.add(told.name)
        problem = self._difference(told, ran, without)
        if problem:
            self.differing[told.name] = f"$ {' '.join(words)}\n{problem}"
        return ran

    def _ours(self, word: str, *, of_jobs: bool) -> str:
        """Put our job numbers, hosts and accounts into a word of a recorded command."""
        if of_jobs and word.isdecimal() and int(word) in self.numbers:
            return str(self.numbers[int(word)])
        word = re.sub(r"^inner=(\d+)$", lambda found: f"inner={self.numbers.get(int(found[1]), found[1])}", word)
        word = re.sub(r"\bnode([1-4])\b", lambda found: self.site.nodes[int(found[1]) - 1], word)
        return self.site.users.get(word, word)

    def _difference(self, told: Record, ran: Ran, without: tuple[int, ...]) -> str:
        if ran.code != told.code:
            return f"ended with {ran.code}, OAR with {told.code}\n{ran.out}{ran.err}"
        if told.code == 0 and bool(ran.err) > bool(told.err):
            return f"says on stderr: {ran.err}"
        if told.code != 0:
            return "" if ran.err else "says nothing on stderr"
        kept = "".join(line for line in told.out.splitlines(keepends=True) if _number(line) not in without)
        expected = comparable(kept, told.form, names={"/home/alice": "HOME", "/home/bob": "HOME"})
        found = comparable(ran.out, told.form, names=self._names())
        if told.form == "-J":
            expected, found = ([f"{key}: {value}" for key, value in _flat(side)] for side in (expected, found))
        return "\n".join(difflib.unified_diff(expected, found, "OAR", "here", lineterm="", n=0))

    def _names(self) -> dict[str, str]:
        site = self.site
        names = {site.users["alice"]: "alice", site.users["bob"]: "bob", str(site.home): "HOME"}
        names |= {name: f"node{at}" for at, name in enumerate(site.nodes, 1)}
        return names | {str(ours): str(recorded) for recorded, ours in self.numbers.items()}


def _number(line: str) -> int:
    found = re.match(r"(\d+)\b", line)
    return int(found[1]) if found else 0


def _flat(value: object, path: str = "") -> list[tuple[str, object]]:
    if isinstance(value, dict):
        return [pair for name, part in sorted(value.items()) for pair in _flat(part, f"{path}.{name}")]
    return [(path, value)]
