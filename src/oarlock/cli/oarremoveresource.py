"""oarremoveresource: remove resources that are Dead."""

from __future__ import annotations

from oarlock.cli import entry
from oarlock.cli.options import LONGEST_NUMBER, Options
from oarlock.client import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from oarlock.cli.options import Asked
    from oarlock.cli.output import Output
    from oarlock.client import Client

OPTIONS = Options(
    "oarremoveresource",
    "Remove resources that are Dead, with their history (administrators).",
    usage=("RESOURCE...",),
    about="A resource is first declared Dead: oarnodesetting -r RESOURCE -s Dead.",
)
OPTIONS.end()


def main() -> int:
    """Run the command."""
    return entry.main(OPTIONS, run)


def run(client: Client, asked: Asked, out: Output) -> None:
    """Remove one after the other; the first refusal ends it."""
    for resource_id in [_number(word) for word in asked.words] or [_number("")]:
        out.line(f"Resource to remove : {resource_id}")
        client.remove_resource(resource_id)
        out.line(f"Resource {resource_id} removed.")


def _number(word: str) -> int:
    if word.isdecimal() and word.isascii() and len(word) <= LONGEST_NUMBER:
        return int(word)
    sentence = f"`{word}` is no resource number." if word else "No resource is named."
    raise Refused(sentence, kind="BadOption", hint="`oarnodes -s` lists them.")
