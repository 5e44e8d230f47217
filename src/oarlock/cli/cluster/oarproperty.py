"""oarproperty: which properties resources have."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarproperty",
    "List, add, rename and drop the properties of resources (changes: administrators).",
    usage=("-l", "-a NAME... [-c]", "-d NAME...", "-r OLD,NEW..."),
)
OPTIONS.flag("-l --list", "list the properties of the site")
OPTIONS.text("-a --add=NAME", "add a property, for whole numbers", many=True)
OPTIONS.flag("-c --varchar", "with -a: for texts")
OPTIONS.text("-d --delete=NAME", "drop a property with its values", many=True)
OPTIONS.text("-r --rename=OLD,NEW", "give a property another name", many=True)
OPTIONS.json()
OPTIONS.flag("-q --quiet", "print nothing but refusals")
OPTIONS.end()
OPTIONS.example("oarproperty -a gpu_model -c", "add a property whose values are texts")
OPTIONS.example('oarproperty -r "cpu_freq,freq"', "rename one")


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Carry out the options, one property after the other; the first refusal ends it."""
    if parsed.words or not any(parsed.given(key) for key in ("list", "add", "delete", "rename")):
        raise RequestRefused("Nothing is asked for.", kind="BadOption", hint="Give -l, -a NAME, -d NAME or -r OLD,NEW.")
    renames = [_pair(text) for text in parsed.texts("rename")]
    for name in parsed.texts("add"):
        _add(client, name, parsed, out)
    for name in parsed.texts("delete"):
        client.delete_property(name)
        _tell(f"Removed property: {name}", parsed, out)
    for old, new in renames:
        client.rename_property(old, new)
        _tell(f"Renamed property: {old} into {new}", parsed, out)
    if parsed.given("list"):
        _list(client, out)


def _add(client: Client, name: str, parsed: ParsedOptions, out: CommandOutput) -> None:
    kind = "str" if parsed.given("varchar") else "int"
    if client.add_property(name, kind):
        _tell(f"Added property: {name}", parsed, out)
    elif not parsed.given("quiet"):
        out.note(f"The property `{name}` is there already; nothing was changed.")


def _list(client: Client, out: CommandOutput) -> None:
    answer = client.properties()
    own = {name: kind for name, kind in sorted(answer["properties"].items()) if name not in answer["system"]}
    if out.form:
        out.data(own)
        return
    for name in own:
        out.line(name)


def _pair(text: str) -> tuple[str, str]:
    old, comma, new = text.partition(",")
    if not (comma and old.strip() and new.strip()):
        raise RequestRefused(f"`{text}` is not a pair of names.", kind="BadOption", hint="Write it as OLD,NEW.")
    return old.strip(), new.strip()


def _tell(line: str, parsed: ParsedOptions, out: CommandOutput) -> None:
    if not parsed.given("quiet"):
        out.line(line)
