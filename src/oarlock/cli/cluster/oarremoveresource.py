"""oarremoveresource: remove resources that are Dead."""

from __future__ import annotations

from oarlock.cli import output
from oarlock.cli.options import LONGEST_NUMBER, CommandOptions
from oarlock.client import RequestRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import ParsedOptions
    from oarlock.cli.output import CommandOutput
    from oarlock.client import Client

OPTIONS = CommandOptions(
    "oarremoveresource",
    "Remove resources that are Dead, with their history (administrators).",
    usage=("RESOURCE...",),
    about="A resource is first declared Dead: oarnodesetting -r RESOURCE -s Dead.",
)
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return output.main(OPTIONS, run)


def run(client: Client, parsed: ParsedOptions, out: CommandOutput) -> None:
    """Remove one after the other; the first refusal ends it."""
    for resource_id in [_number(word) for word in parsed.words] or [_number("")]:
        out.line(f"Resource to remove : {resource_id}")
        client.remove_resource(resource_id)
        out.line(f"Resource {resource_id} removed.")


def _number(word: str) -> int:
    if word.isdecimal() and word.isascii() and len(word) <= LONGEST_NUMBER:
        return int(word)
    sentence = f"`{word}` is not a resource number." if word else "No resource is named."
    raise RequestRefused(sentence, kind="BadOption", hint="`oarnodes -s` lists them.")
