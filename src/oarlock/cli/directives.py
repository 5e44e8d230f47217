"""`oarsub -S`: options that a script carries in its `#OAR` lines."""

from __future__ import annotations

import os
import shlex

from oarlock.cli.options import ParsedOptions
from oarlock.cli.submission import read
from oarlock.client import RequestRefused
from oarlock.lang.directives import Directive, scan
from oarlock.model.errors import OarlockError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import CommandOptions
    from oarlock.cli.output import CommandOutput

ADDED = frozenset({"resource", "type", "anterior"})
"""Options that add up; of all others the command line's value wins."""
ONLY_TYPED = frozenset(
    {"scanscript", "resubmit", "dry_run", "server", "help", "version", "dumper", "xml", "yaml", "json"}
)


def scanned(parsed: ParsedOptions, options: CommandOptions, out: CommandOutput) -> ParsedOptions:
    """Add the options of the script to those of the command line.

    The script itself is not sent: a server that got it would follow its `#OAR` lines a second time.
    """
    if not parsed.words:
        raise RequestRefused("-S needs a script.", kind="NoCommand", hint="oarsub -S SCRIPT")
    whole = parsed.words[0]
    path = whole if os.path.isfile(whole) or not whole.strip() else whole.split()[0]
    try:
        directives = scan(read(path, kind="BadScript", what="script", errors="surrogateescape"))
    except OarlockError as refused:
        raise RequestRefused(str(refused), kind="BadScript", hint=refused.hint) from None
    both = ParsedOptions()
    both.words, both.behind, both.dashed = list(parsed.words), parsed.behind, parsed.dashed
    if path == whole and any(character.isspace() for character in path):
        both.words[0] = shlex.quote(path)
    both.values = {key: list(values) for key, values in parsed.values.items()}
    for directive in directives:
        _merge(both, parsed, _options(directive, options, path), directive, out)
    return both


def _options(directive: Directive, options: CommandOptions, path: str) -> ParsedOptions:
    try:
        scanned_options = options.parse(directive.words)
    except RequestRefused as refused:
        raise _bad(path, directive, str(refused), refused.hint) from None
    if scanned_options.words:
        raise _bad(
            path,
            directive,
            f"`{scanned_options.words[0]}` is not an option.",
            "An #OAR line holds no command.",
        )
    if kept := sorted(ONLY_TYPED & scanned_options.values.keys()):
        name = kept[0].replace("_", "-")
        raise _bad(path, directive, f"--{name} has no place in a script.", "Give it on the command line.")
    return scanned_options


def _merge(
    both: ParsedOptions, typed: ParsedOptions, scanned_options: ParsedOptions, directive: Directive, out: CommandOutput
) -> None:
    for key, values in scanned_options.values.items():
        if key in ADDED:
            both.values.setdefault(key, []).extend(values)
        elif typed.given(key):
            name = key.replace("_", "-")
            out.note(
                f"line {directive.line} of the script (--{name} {' '.join(values)}) gives way to the command line."
            )
        else:
            both.values[key] = values


def _bad(path: str, directive: Directive, sentence: str, hint: str) -> RequestRefused:
    return RequestRefused(f"{path}, line {directive.line}: {sentence}", kind="BadScript", hint=hint)
