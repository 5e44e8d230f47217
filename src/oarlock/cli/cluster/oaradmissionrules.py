"""oaradmissionrules: the admission rules in the table, for administrators."""

from __future__ import annotations

import os

from oarlock.cli import output
from oarlock.cli.options import LONGEST_NUMBER, CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oaradmissionrules",
    "Show, create, change and delete the admission rules in the table (administrators).",
    usage=("-S [OPTION]...", "-s RULE [OPTION]...", "-n [OPTION]...", "-m RULE [OPTION]...", "-d RULE"),
    about=(
        "Rules are TOML texts with a condition and what to do; examples beside a rule are tried before it is stored. "
        "Rules in files, shipped ones and the site's, are shown by `oarlock rules list`. A rule holds at once."
    ),
)
OPTIONS.flag("-S --show-all", "show all rules of the table; with -Y or -N only those that are on or off")
OPTIONS.text("-s --show=RULE", "show one rule")
OPTIONS.flag("-I --id", "with -S or -s: numbers only")
OPTIONS.flag("-f --full", "with -S or -s: the whole text")
OPTIONS.flag("-H --no-header", "with -S or -s: nothing but the text")
OPTIONS.maybe("-w --to-file=FILE", "with -S or -s: write the text to a file (%% becomes the number; rule%%.toml)")
OPTIONS.flag("-n --new", "create a rule")
OPTIONS.text("-m --modify=RULE", "change a rule")
OPTIONS.maybe("-e --edit=COMMAND", "with -n or -m: edit the text with this command, or your editor")
OPTIONS.text("-r --from-file=FILE", "with -n or -m: read the text from a file; - is standard input")
OPTIONS.number("-P --priority=NUMBER", "with -n or -m: lower ones apply first")
OPTIONS.flag("-Y --enabled", "with -n or -m: switch the rule on")
OPTIONS.flag("-N --disabled", "with -n or -m: switch the rule off")
OPTIONS.text("-d --delete=RULE", "delete a rule")
OPTIONS.json()
OPTIONS.end()
OPTIONS.example("oaradmissionrules -n -r night.toml -P 20", "put the rule of a file into the table")
OPTIONS.example("oaradmissionrules -m 3 -N", "switch rule 3 off")

_ACTIONS = ("show_all", "show", "new", "modify", "delete")
_LONGEST_FILE = 65_536


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Do what the one action says."""
    actions = [name for name in _ACTIONS if parsed.given(name)]
    if len(actions) != 1 or parsed.words:
        what = f"`{parsed.words[0]}` is not an option" if parsed.words else "There must be one of -S, -s, -n, -m and -d"
        raise _refused(f"{what}.", "oaradmissionrules --help explains them.")
    if parsed.given("enabled") and parsed.given("disabled") and actions[0] not in {"show_all", "show"}:
        raise _refused("-Y and -N say the opposite.", "Give one of them.")
    {"show_all": _show, "show": _show, "new": _new, "modify": _modify, "delete": _delete}[actions[0]](
        client, parsed, out
    )


def _show(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    rows = client.rules()
    if parsed.given("show"):
        rows = [_only(rows, _number(parsed.text("show") or ""))]
    elif parsed.given("enabled") != parsed.given("disabled"):
        rows = [row for row in rows if row["enabled"] == parsed.given("enabled")]
    if out.form:
        out.data(rows)
    elif parsed.given("to_file"):
        _write(rows, parsed.text("to_file") or "rule%%.toml", out)
    elif parsed.given("id"):
        for row in rows:
            out.line(str(row["id"]))
    else:
        for row in rows:
            _print(row, parsed, out)


def _print(row: Any, parsed: ParsedOptions, out: CommandOutput) -> None:
    if not parsed.given("no_header"):
        out.line("------")
        out.line(f"Rule     : {row['id']}")
        out.line(f"Priority : {row['priority']}")
        out.line(f"Enabled  : {'YES' if row['enabled'] else 'NO'}")
        if row["language"] != "TOML":
            out.line(f"Language : {row['language']}{'' if row['names'] else ' (not used: Perl is not run)'}")
        out.line("------")
    if parsed.given("full") or parsed.given("no_header"):
        for line in row["rule"].splitlines():
            out.line(line)
    else:
        for name in row["names"] or ["(a text that is not used)"]:
            out.line(name)


def _write(rows: Any, pattern: str, out: CommandOutput) -> None:
    if len(rows) > 1 and "%%" not in pattern:
        raise _refused(f"{len(rows)} rules do not fit into one file.", "Write %% into its name; it becomes the number.")
    for row in rows:
        path = pattern.replace("%%", str(row["id"]))
        try:
            with open(path, "w", encoding="utf-8") as file:
                file.write(row["rule"])
        except OSError as problem:
            raise _refused(f"{path} cannot be written: {problem.strerror}.", "Name another file.") from None
        out.line(f"Rule {row['id']} is in {path}.")


def _new(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    text = _text(parsed, _TEMPLATE)
    rule = {"rule": text, "priority": parsed.number("priority") or 0, "enabled": not parsed.given("disabled")}
    out.line(f"Rule {client.add_rule(rule)} is stored.")


def _modify(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    number = _number(parsed.text("modify") or "")
    change: dict[str, Any] = {}
    if parsed.given("from_file") or parsed.given("edit"):
        change["rule"] = _text(parsed, _only(client.rules(), number)["rule"])
    if parsed.given("priority"):
        change["priority"] = parsed.number("priority")
    if parsed.given("enabled") or parsed.given("disabled"):
        change["enabled"] = parsed.given("enabled")
    if not change:
        raise _refused(f"What shall change of rule {number}?", "Say it: -e, -r FILE, -P NUMBER, -Y or -N.")
    client.change_rule(number, change)
    out.line(f"Rule {number} is changed.")


def _delete(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    number = _number(parsed.text("delete") or "")
    client.remove_rule(number)
    out.line(f"Rule {number} is deleted.")


_TEMPLATE = """\
[[rule]]
name = "what it is for"
when = "queue = 'default' AND walltime > '8:00:00'"
print = "{user}, this is a long job."

[[example]]
name = "nine hours"
job = { queue = "default", resources = ["nodes=1,walltime=9"] }
gives = { queue = "default" }
"""


def _text(parsed: ParsedOptions, present: str) -> str:
    """Return the text of a rule: of a file, or as an editor leaves it."""
    path = parsed.text("from_file")
    if path is None:
        chosen = parsed.text("edit") or os.environ.get("VISUAL") or os.environ.get("EDITOR")
        if not chosen and not (os.isatty(0) and os.isatty(1)):
            raise _refused(
                "There is no terminal to edit a rule in.", "-r FILE names a file with it, -r - reads it here."
            )
        from oarlock.model.errors import OarlockError
        from oarlock.server.editor import edited

        try:
            return edited(present, command=parsed.text("edit"))
        except OarlockError as problem:
            raise _refused(str(problem), problem.hint) from None
    try:
        with open(0 if path == "-" else path, encoding="utf-8", closefd=path != "-") as file:
            text = file.read(_LONGEST_FILE + 1)
    except OSError as problem:
        raise _refused(f"{path} cannot be read: {problem.strerror}.", "Nothing was changed.") from None
    except UnicodeDecodeError:
        raise _refused(f"{path} is not UTF-8 text.", "Nothing was changed.") from None
    if len(text) > _LONGEST_FILE:
        raise _refused(f"{path} is longer than {_LONGEST_FILE} characters.", "Cut it into several rules.")
    return text


def _only(rows: Any, number: int) -> Any:
    for row in rows:
        if row["id"] == number:
            return row
    raise RequestRefused(
        f"There is no rule {number} in the table.", kind="UnknownRule", hint="`oaradmissionrules -S` lists them."
    )


def _number(word: str) -> int:
    if not (word.isdecimal() and word.isascii()) or len(word) > LONGEST_NUMBER:
        raise _refused(f"`{word}` is not the number of a rule.", "`oaradmissionrules -S` lists them.")
    return int(word)


def _refused(sentence: str, hint: str) -> RequestRefused:
    return RequestRefused(sentence, kind="BadOption", hint=hint)
