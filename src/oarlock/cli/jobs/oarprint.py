"""oarprint: print the resources of a job by one of their properties."""

from __future__ import annotations

import os
import re
import sys

from oarlock.cli import output
from oarlock.cli.layout.readable import natural_order
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

VARIABLE = "OAR_RESOURCE_PROPERTIES_FILE"

OPTIONS = CommandOptions(
    "oarprint",
    "Print the resources of a job, one line for each value of a property.",
    usage=("PROPERTY [-P PROPERTIES] [-F FORMAT] [-f FILE]", "-l [-f FILE]"),
    version_names="--version",
    about=(
        "Lines are sorted by the property; values that several resources of a line have are printed once. The "
        f"resources are those of the job it runs in (${VARIABLE}), of a file, or what `oarstat -p` prints."
    ),
)
OPTIONS.text("-f=FILE", f"read this file; `-` is standard input (default: ${VARIABLE})")
OPTIONS.text("-P=PROPERTIES", "the properties to print, with commas between (default: the one that sorts)")
OPTIONS.text("-F=FORMAT", "how a line looks; each token stands for the next property (default: all, blanks between)")
OPTIONS.text("-T=TOKEN", "the token in the format (default: %)")
OPTIONS.text("-C=SEPARATOR", "what stands between several values (default: ,)")
OPTIONS.flag("-l", "list the properties that can be printed and end")
OPTIONS.end(server=False)
OPTIONS.example('oarprint host -P host,cpu,core -F "host: % cpu: % core: %" -C+', "in a job: its hosts and their cores")
OPTIONS.example('oarstat -j 42 -p | oarprint core -P host,cpuset,mem -F "%[%] (%)" -f -', "elsewhere: those of job 42")

_LONGEST_FILE = 256 << 20  # a line for each of a million resources; a device has no end
_BETWEEN = re.compile(r"'\s*,\s*(?=\w{1,255} = ')")  # two pairs; a value may hold quotes and commas
_PAIR = re.compile(r"(\w{1,255}) = '(.*)", re.DOTALL)

Resource = dict[str, str]


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(_client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Print a line for each value of the property, or the properties there are."""
    if len(parsed.words) > 1 or (not parsed.words and not parsed.given("l")):
        sentence = f"`{parsed.words[1]}` is one word too many." if parsed.words else "No property is named."
        raise RequestRefused(sentence, kind="BadOption", hint="oarprint PROPERTY; `oarprint -l` lists the properties.")
    resources = _parsed(_read(parsed.text("f")))
    if parsed.given("l"):
        out.line("List of properties:")
        out.line(", ".join(sorted({name for resource in resources for name in resource})))
        return
    key = parsed.words[0]
    shown = parsed.text("P")
    names = [key] if shown is None else [name.strip() for name in shown.split(",")]
    token = "%" if parsed.text("T") is None else parsed.text("T") or ""
    if not token:
        raise RequestRefused("-T is empty.", kind="BadOption", hint="Write a token that the format holds, such as %.")
    _refuse_unknown([key, *names], resources)
    separator = parsed.text("C")
    form = parsed.text("F")
    if form is None:
        form = " ".join([token] * len(names))
    for line in lines(resources, key, names, form, token=token, separator="," if separator is None else separator):
        out.line(line)


def lines(resources: list[Resource], key: str, names: list[str], form: str, *, token: str, separator: str) -> list[str]:
    """Return one line for each value of `key`: the values of the named properties that go with it, each once."""
    groups: dict[str, list[Resource]] = {}
    for resource in resources:
        if key in resource:
            groups.setdefault(resource[key], []).append(resource)
    return [
        _filled(form, token, [_values(groups[value], name, separator) for name in names])
        for value in sorted(groups, key=natural_order)
    ]


def _values(group: list[Resource], name: str, separator: str) -> str:
    return separator.join(sorted({resource[name] for resource in group if name in resource}, key=natural_order))


def _filled(form: str, token: str, values: list[str]) -> str:
    """Put the values in the place of the first tokens; tokens beyond them stay, since values may hold one, too."""
    parts = form.split(token)
    ends = [*values, *[token] * len(parts)]
    return "".join(part + ends[at] for at, part in enumerate(parts[:-1])) + parts[-1]


def _parsed(text: str) -> list[Resource]:
    """Parse lines of `name = 'value' , …`; what is no such line is refused."""
    resources = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        pairs = _pairs(line.strip())
        if not pairs:
            raise RequestRefused(
                f"Line {number} does not describe a resource: `{line.strip()[:40]}`.",
                kind="BadFile",
                hint="Each line is a resource, as `oarstat -j JOB -p` prints it: name = 'value' , …",
            )
        resources.append(pairs)
    return resources


def _pairs(line: str) -> Resource:
    """Return the properties of one line; nothing if it is not such a line. It takes time as long as the line is."""
    if not line.endswith("'"):
        return {}
    pairs = [_PAIR.fullmatch(piece) for piece in _BETWEEN.split(line[:-1])]
    return {} if None in pairs else {pair[1]: pair[2] for pair in pairs if pair}


def _refuse_unknown(names: list[str], resources: list[Resource]) -> None:
    there = {name for resource in resources for name in resource}
    for name in names:
        if resources and name not in there:
            raise RequestRefused(
                f"No resource has a property `{name}`.", kind="UnknownProperty", hint="`oarprint -l` lists them."
            )


def _read(path: str | None) -> str:
    if path is None:
        path = os.environ.get(VARIABLE)
        if not path:
            raise RequestRefused(
                f"${VARIABLE} is not set: this is not inside a job.",
                kind="BadFile",
                hint="oarstat -j JOB -p | oarprint PROPERTY -f -",
            )
    try:
        if path == "-":
            return sys.stdin.buffer.read(_LONGEST_FILE).decode()
        with open(path, encoding="utf-8") as file:
            return file.read(_LONGEST_FILE)
    except OSError as why:
        sentence = f"{path} cannot be read: {why.strerror}."
    except UnicodeDecodeError as why:
        what = "Standard input" if path == "-" else path
        sentence = f"{what} cannot be read: byte {why.start + 1} of it is not valid UTF-8."
    raise RequestRefused(sentence, kind="BadFile", hint="`oarstat -j JOB -p` prints what is read here.")
