"""Perl rules in the table `admission_rules`: those of the manual are recognised and translated, no Perl is ever run."""

import re
from collections.abc import Callable
from typing import NamedTuple

_PERL = re.compile(r"[$@%]\{?\$?[A-Za-z_]\w*|\bdie\s*\(|\bmy\s+[($@%]|\bsub\s+\w+\s*\{|\belsif\b")
_TOML = re.compile(r"^\s*\[\[(rule|example)\]\]", re.MULTILINE)
_COMMENT = re.compile(r"(?m)^\s*#.*$|\s#\s.*$")
_TEXT = r'"((?:[^"\\]|\\.)*)"'
_PREFIX = re.compile(r"^\[ADMISSION RULE\]\s*")
_ALL_MOLDS = r"foreach my \$\w+ ?\( ?@\{ ?\$ref_resource_list ?\} ?\) ?\{"
_DURATION = r"(?:\w+::)+sql_to_duration ?\( ?" + _TEXT + r" ?\) ?;"


def is_perl(text: str) -> bool:
    """Return whether a text of rules looks like Perl, and not like TOML."""
    return not _TOML.search(text) and bool(_PERL.search(text))


def translated(text: str) -> str | None:
    """Return a Perl rule as TOML, if it is one of the manual's five with names and times of the site's own."""
    plain = " ".join(_COMMENT.sub("", text.replace("\r", "")).split())
    for example in _EXAMPLES:
        if match := example.pattern.fullmatch(plain):
            toml = example.write(match)
            # A variable that is left over would be printed as it stands, and braces mean something else in TOML rules.
            return None if "$" in toml or "{" in "".join(match.groups()) else toml
    return None


class _PerlExample(NamedTuple):
    """A rule of the manual: its shape with all blanks made one, and how it is written in TOML."""

    pattern: re.Pattern[str]
    write: Callable[[re.Match[str]], str]


def _shape(pattern: str) -> re.Pattern[str]:
    """Compile a shape; a blank in it may be missing in the text."""
    return re.compile(pattern.replace(" ", " ?").replace(" ??", " ?"))


def _default_queue(match: re.Match[str]) -> str:
    return _rule("default queue", default=f"{{ queue = {_quoted(match[1])} }}")


def _reserved_queue(match: re.Match[str]) -> str:
    condition = f"queue = {_literal(match[1])} AND user != {_literal(match[2])}"
    return _rule(f"queue {match[1]}", when=_quoted(condition), reject=_quoted(_sentence(match[3])))


def _longest_interactive(match: re.Match[str]) -> str:
    condition = f"interactive = 'YES' AND walltime > {_literal(match[2])}"
    says = _sentence(match[3]).replace(f"${match[1]}", str(_seconds(match[2])))
    clamp = f"{{ walltime = {_quoted(match[2])} }}"
    return _rule("interactive walltime", when=_quoted(condition), clamp_max=clamp, print=_quoted(says))


def _default_walltime(match: re.Match[str]) -> str:
    says = _sentence(match[3]).replace(f"${match[1]}", str(_seconds(match[2])))
    return _rule("default walltime", default=f"{{ walltime = {_quoted(match[2])} }}", print=_quoted(says))


def _users_of_a_file(match: re.Match[str]) -> str:
    condition = f"user IN FILE {_literal(match[1])} AND queue != {_literal(match[2])}"
    return _rule(
        "users of a file", when=_quoted(condition), route=_quoted(match[4]), print=_quoted(_sentence(match[3]))
    )


_EXAMPLES = (
    _PerlExample(
        _shape(r"if \( (?:not |! )defined \( \$queue_name \) \) \{ \$queue_name = " + _TEXT + r" ; \}"), _default_queue
    ),
    _PerlExample(
        _shape(
            r"if \( \( \$queue_name eq " + _TEXT + r" \) (?:&&|and) \( \$user ne " + _TEXT + r" \) \) "
            r"\{ die \( " + _TEXT + r" \) ; \}"
        ),
        _reserved_queue,
    ),
    _PerlExample(
        _shape(
            r"my \$(\w+) = " + _DURATION + r' if \( \$jobType eq "INTERACTIVE" \) \{ ' + _ALL_MOLDS
            + r" if \( \( defined \( \$\w+->\[1\] \) \) (?:and|&&) \( \$\w+ < \$\w+->\[1\] \) \) "
            r"\{ print \( " + _TEXT + r" \) ; \$\w+->\[1\] = \$\w+ ; \} \} \}"
        ),
        _longest_interactive,
    ),
    _PerlExample(
        _shape(
            r"my \$(\w+) = " + _DURATION + " " + _ALL_MOLDS
            + r" if \( (?:! |not )defined \( \$\w+->\[1\] \) \) "
            r"\{ print \( " + _TEXT + r" \) ; \$\w+->\[1\] = \$\w+ ; \} \}"
        ),
        _default_walltime,
    ),
    _PerlExample(
        _shape(
            r"open \( FILE , " + _TEXT + r" \) ; while \( \( \$queue_name ne " + _TEXT + r" \) (?:and|&&) "
            r"\( \$_ = <FILE> \) \) \{ if \( \$_ =~ m/\^\\+s\*\$user\\+s\*\$/m \) "
            r"\{ print \( " + _TEXT + r" \) ; \$queue_name = " + _TEXT + r" ; \} \} close \( FILE \) ;"
        ),
        _users_of_a_file,
    ),
)  # fmt: skip


def _rule(name: str, **keys: str) -> str:
    lines = [f"{key} = {value}" for key, value in {"name": _quoted(name), **keys}.items()]
    return "\n".join(["[[rule]]", *lines, ""])


def _sentence(text: str) -> str:
    r"""Return what a Perl rule prints: without `\n` at its end and OAR's prefix, which every message gets anyway."""
    return _PREFIX.sub("", re.sub(r"(\\+n)+$", "", text)).strip()


def _seconds(duration: str) -> int:
    hours, minutes, seconds = ([int(part) for part in duration.split(":")] + [0, 0])[:3]
    return hours * 3600 + minutes * 60 + seconds


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
