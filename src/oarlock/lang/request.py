"""The request language of `-l`: what a job asks for, text ⇄ tree.

alternative := item (',' item)*              one `-l`; the walltime at most once
item        := groups | 'walltime' '=' duration
groups      := group ('+' group)*            a comma between groups is read as a plus
group       := ['{' condition '}'] ['/'] level ('/' level)*
level       := name '=' (integer | ALL | BEST | BESTHALF)
"""

import re
from collections.abc import Sequence

from msgspec.structs import replace

from oarlock.lang import duration
from oarlock.lang import where as conditions
from oarlock.lang.limits import fits, short
from oarlock.model.condition import Condition
from oarlock.model.errors import SyntaxRefused, TooLong
from oarlock.model.submission import WORDS, Alternative, Level, ResourceGroup, ResourceRequest
from oarlock.model.submission_errors import BadCount, ZeroResources

MOST_ALTERNATIVES = 64
MOST_RESOURCES = 2**31 - 1

_NODES = frozenset({"node", "nodes"})
_BLANKS = re.compile(r"\s*")
_WALLTIME = re.compile(r"\s*(walltime)\s*=([^,]*)", re.IGNORECASE)
_LEVEL = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)\s*=\s*([^\s/+,={}]+)\s*")
_BEGUN = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*\s*(=\s*)?)?")  # as much of a level as is there
_COUNT = re.compile(r"0*([0-9]{1,10})")
_COUNT_WORDS = {count: word for word, count in WORDS.items()}
_EXPECTED_COUNT = f"a whole number from 1 to {MOST_RESOURCES}, ALL, BEST or BESTHALF"


def parse(
    texts: Sequence[str],
    *,
    where: str | None = None,
    nodes_property: str = "network_address",
    default_resources: str = "/resource_id=1",
) -> ResourceRequest:
    """Read every `-l` as one alternative, and the `-p` that holds for all of them.

    `node` and `nodes` stand for `nodes_property`. An alternative that gives only a walltime, or no `-l` at all, asks
    for `default_resources`, which is itself such a text.
    """
    if len(texts) > MOST_ALTERNATIVES:
        raise TooLong(
            f"There are {len(texts)} alternatives (-l); at most {MOST_ALTERNATIVES} are read.",
            hint="Keep those that you would really take.",
        )
    alternatives = [_alternative(text, nodes_property) for text in texts] or [Alternative(())]
    if not all(alternative.groups for alternative in alternatives):
        default = _default(default_resources, nodes_property)
        alternatives = [_completed(alternative, default) for alternative in alternatives]
    return ResourceRequest(tuple(alternatives), None if where is None else conditions.parse(where))


def check(request: ResourceRequest, types: conditions.Types) -> ResourceRequest:
    """Return the request with every name spelt as its column and every value of the column's type, or refuse it."""
    alternatives = tuple(
        replace(alternative, groups=tuple(_checked(group, types) for group in alternative.groups))
        for alternative in request.alternatives
    )
    return ResourceRequest(alternatives, _checked_condition(request.where, types))


def show(request: ResourceRequest) -> str:
    """Write a request as options of `oarsub`, quoted for a shell."""
    options = [f"-l {_quoted(show_alternative(alternative))}" for alternative in request.alternatives]
    if request.where is not None:
        options.append(f"-p {_quoted(conditions.show(request.where))}")
    return " ".join(options)


def show_wanted(request: ResourceRequest) -> str:
    """Write what a job wants as OAR's `oarstat -f` does: every alternative quoted, `0:10:0`, a blank behind each."""
    return "".join(f"-l {_quoted(_show_unpadded(alternative))} " for alternative in request.alternatives)


def _show_unpadded(alternative: Alternative) -> str:
    groups = "+".join(map(_show_group, alternative.groups))
    if alternative.walltime is None:
        return groups
    return f"{groups},walltime={duration.show_unpadded(alternative.walltime)}"


def show_alternative(alternative: Alternative) -> str:
    """Write an alternative as one `-l` says it; parsing it again gives the same tree."""
    groups = "+".join(map(_show_group, alternative.groups))
    return groups if alternative.walltime is None else f"{groups},walltime={duration.show(alternative.walltime)}"


def _alternative(text: str, nodes_property: str) -> Alternative:
    fits(text, what="request")
    return _Reader(text, nodes_property).alternative()


def _default(text: str, nodes_property: str) -> Alternative:
    default = _alternative(text, nodes_property)
    if not default.groups:
        raise SyntaxRefused("The default resources are none", text=text, at=0, expected="a property and a count")
    return default


def _completed(alternative: Alternative, default: Alternative) -> Alternative:
    """Fill an alternative that names no resources."""
    if alternative.groups:
        return alternative
    return Alternative(default.groups, alternative.walltime or default.walltime)


class _Reader:
    """One pass over one `-l`; `at` is the place of the next character to be read."""

    __slots__ = ("at", "nodes_property", "text")

    def __init__(self, text: str, nodes_property: str) -> None:
        self.text, self.nodes_property, self.at = text, nodes_property, 0

    def alternative(self) -> Alternative:
        groups: list[ResourceGroup] = []
        walltime: int | None = None
        mark = ","
        while mark:
            if mark == "," and (match := _WALLTIME.match(self.text, self.at)):
                if walltime is not None:
                    raise self.refused(match.start(1), "no second walltime")
                walltime = duration.read(self.text, *match.span(2))
                self.at = match.end()
            else:
                groups.append(self.group())
            mark = self.separator()
        return Alternative(tuple(groups), walltime)

    def separator(self) -> str:
        """Step over what stands between two groups; an empty text at the end."""
        mark = self.text[self.at : self.at + 1]
        if mark and mark not in "+,":
            raise self.refused(self.at, "`/`, `+`, `,` or the end")
        self.at += len(mark)
        return mark

    def group(self) -> ResourceGroup:
        where = self.condition()
        self.step("/")
        above: set[str] = set()
        levels = [self.level(above)]
        while self.step("/"):
            levels.append(self.level(above))
        return ResourceGroup(tuple(levels), where)

    def condition(self) -> Condition | None:
        if not self.step("{"):
            return None
        where, self.at = conditions.parse_braced(self.text, self.at)
        return where

    def level(self, above: set[str]) -> Level:
        match = _LEVEL.match(self.text, self.at)
        if match is None:
            raise self.unfinished()
        name, count = match.groups()
        if name.lower() == "walltime":
            raise self.refused(
                match.start(1), "a property", hint="The walltime stands behind a comma: nodes=1,walltime=2"
            )
        if name.lower() in _NODES:
            name = self.nodes_property
        if name.lower() in above:
            raise self.refused(match.start(1), f"another property than `{short(name)}`, which stands above already")
        above.add(name.lower())
        self.at = match.end()
        return Level(name, WORDS.get(count.upper()) or self.count(count, match.start(2)))

    def count(self, written: str, at: int) -> int:
        match = _COUNT.fullmatch(written)
        count = int(match[1]) if match else 0
        if 0 < count <= MOST_RESOURCES:
            return count
        what = f"`{short(written)}` resources cannot be asked for"
        refusal = ZeroResources if match and count == 0 else BadCount
        raise refusal(what, text=self.text, at=at, expected=_EXPECTED_COUNT)

    def step(self, mark: str) -> bool:
        """Step over blanks, and over a mark if it stands behind them."""
        match = next(_BLANKS.finditer(self.text, self.at))
        self.at = match.end()
        if not self.text.startswith(mark, self.at):
            return False
        self.at += 1
        return True

    def unfinished(self) -> SyntaxRefused:
        """Return a refusal that names the missing part of a level."""
        match = next(_BEGUN.finditer(self.text, self.at))
        if match[1] is None:
            return self.refused(
                match.end(), "a property, such as `nodes`" if self.text.strip() else "resources, such as `nodes=1`"
            )
        if match[1].strip().lower() == "walltime":
            return self.refused(match.end(), "`=` and a time, such as `walltime=1:30:00`")
        return self.refused(match.end(), "`=` and a count" if match[2] is None else _EXPECTED_COUNT)

    def refused(self, at: int, expected: str, *, hint: str = "") -> SyntaxRefused:
        what = f"Cannot read the request at `{short(self.text[at:])}`"
        if at == len(self.text):
            what = "The request ends too early"
        return SyntaxRefused(what, text=self.text, at=at, expected=expected, hint=hint)


def _checked(group: ResourceGroup, types: conditions.Types) -> ResourceGroup:
    levels = tuple(
        replace(level, name=conditions.known_column(level.name, types, others=("walltime",))) for level in group.levels
    )
    return ResourceGroup(levels, _checked_condition(group.where, types))


def _checked_condition(where: Condition | None, types: conditions.Types) -> Condition | None:
    return None if where is None else conditions.check(where, types)


def _show_group(group: ResourceGroup) -> str:
    where = "" if group.where is None else f"{{{conditions.show(group.where)}}}"
    return where + "".join(f"/{level.name}={_show_count(level.count)}" for level in group.levels)


def _show_count(count: int) -> str:
    return _COUNT_WORDS.get(count) or str(count)


def _quoted(text: str) -> str:
    """Quote for a shell with double quotes, as the manual does, since conditions hold single ones."""
    return '"' + re.sub(r'([\\"$`])', r"\\\1", text) + '"'
