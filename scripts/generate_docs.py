"""Write the pages of docs/reference and man that are made from the code: `make docs`. A test compares them."""

from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path

from oarlock.cli import oarlock
from oarlock.cli.subcommands.site import completion
from oarlock.config import KEYS, SYSTEM_FILE, VARIABLE, Config, Key
from oarlock.settings.reader import TWINS
from oarlock.settings.unused import UNUSED
from oarlock.web import registry, verbs
from oarlock.web.app import fields
from oarlock.web.registry import VERBS
from scripts import manual, oarlock_manual
from scripts.metrics_page import metrics

__all__ = ["PAGES", "main", "verbs"]

ROOT = Path(__file__).resolve().parent.parent

CONFIGURATION = f"""\
# Configuration reference

<!-- Made from src/oarlock/settings by `make docs`; change it there. -->

Every setting has a default, so no file is needed to start. The settings are the file named on the command line, else
the one named in `${VARIABLE}`, else `{SYSTEM_FILE}`, else the defaults. A file that is named must exist.
OAR's own `/etc/oar/oar.conf` is never picked up by accident; it is read when it is named.

`oarlock config FILE` checks a file and shows every setting in effect, with the line that it comes from.

## How the file is read

The file holds `NAME=value` lines and means to Oarlock what it means to `bash`: comments, single and double quotes,
backslashes, line continuations, `export`, and `$NAME` or `${{NAME}}` of a setting above. It is never executed: whatever
would run or compute something (`$(…)`, backticks, `;`, `&&`, pipes, redirections, arrays, `+=`, functions, `~`) is
refused with its line. So are a name that is not known (with the closest one that is), a value of the wrong kind (with
what was expected) and a setting given twice (with both lines).

A password is not written into the file but into a file of its own, of mode 0600 and owned by the server's user or
root: `DB_BASE_PASSWD=file:/etc/oarlock/db.passwd`. The server does not start with a secret that others can read. A
password that stands in the settings is accepted only if that file has mode 0600 itself.
"""


def configuration() -> str:
    """Make the reference page of all settings."""
    sections = [_section(title, list(keys)) for title, keys in groupby(KEYS.values(), key=lambda key: key.section)]
    return "\n".join([CONFIGURATION, *sections, _twins(), _unused()])


def _section(title: str, keys: list[Key]) -> str:
    rows = "\n".join(_row(key) for key in keys)
    return f"## {title}\n\n| setting | default | expected | meaning |\n| --- | --- | --- | --- |\n{rows}\n"


def _row(key: Key) -> str:
    default = key.shown(Config())
    shown = f"`{default}`" if default else "nothing"
    return f"| `{key.name}` | {shown} | {_cell(key.kind.expected)} | {_cell(key.says)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _twins() -> str:
    rows = "\n".join(f"| `{key}` | `{twin.name}` |" for key, twin in TWINS.items())
    return (
        "## Keys of OAR 2.5 that have a twin\n\nThey are read as their twin, in OAR's own forms; a twin that is set "
        f"itself wins.\n\n| OAR 2.5 | here |\n| --- | --- |\n{rows}\n"
    )


def _unused() -> str:
    reasons: dict[str, list[str]] = {}
    for key, reason in UNUSED.items():
        reasons.setdefault(reason, []).append(f"`{key}`")
    rows = "\n".join(f"| {', '.join(keys)} | {_cell(reason)} |" for reason, keys in reasons.items())
    return (
        "## Known and without effect\n\nFiles of OAR 2.5 and OAR 3 hold these; they are accepted, and the server says "
        f"at its start that they do nothing, and why.\n\n| settings | why |\n| --- | --- |\n{rows}\n"
    )


API = f"""\
# API reference

<!-- Made from the verbs in src/oarlock/web/verbs by `make docs`; change them there. -->

Everything that the commands do can be asked over HTTP: on the server's socket, where the kernel says who asks, or on
its port (`SERVER_PORT`), with a token. The server describes itself for programs at `/api/openapi.json` and for people
at `/api/docs`.

    curl --unix-socket /var/lib/oarlock/server.sock http://x{registry.PREFIX}/jobs
    curl -H "Authorization: Bearer $TOKEN" http://127.0.0.1:6680{registry.PREFIX}/jobs?user=ada

- What is asked with stands in the body of a POST, as JSON, and in the address of all others; lists in an address have
  commas between. A field with `?` may be left out; a field that is not known is refused by its name, and none says who
  asks.
- Whatever changes something carries `Request-Id: TEXT`, a new one each time. With the same id again nothing is done
  twice, and the answer is the same; so a request may always be repeated.
- A refusal has a status of 400 or more and the body `{{"error": sentence, "hint": way out, "kind": class}}`; what does
  not follow a grammar has also `text` and `at`, the place.
- A token is made on the socket only, is shown once, ends by itself and is revoked at once. The server keeps its hash.
- Administrators may submit for somebody else with `On-Behalf-Of: USER`.
- A request has at most 1 MiB; a submission of an array 10 MiB.

All addresses begin with `{registry.PREFIX}`.

"""


def api() -> str:
    """Make the reference page of all verbs."""
    rows = "\n".join(
        f"| `{one.method} {one.path}` | {' '.join(f'`{name}`' for name in fields(one)) or 'nothing'} "
        f"| {one.role.value} | {_cell(one.summary)} |"
        for one in VERBS.values()
    )
    return f"{API}| address | asked with | for | what it does |\n| --- | --- | --- | --- |\n{rows}\n"


def _completion(script: Callable[[completion.Offers], str]) -> str:
    return script(completion.offers(oarlock.options()))


PAGES: dict[str, Callable[[], str]] = {
    "completions/oarlock.bash": partial(_completion, completion.bash),
    "completions/_oarlock": partial(_completion, completion.zsh),
    "completions/oarlock.fish": partial(_completion, completion.fish),
    "docs/reference/api.md": api,
    "docs/reference/configuration.md": configuration,
    "docs/reference/commands.md": manual.commands_page,
    "docs/reference/slurm-commands.md": manual.slurm_page,
    "docs/reference/metrics.md": metrics,
    "docs/reference/oarlock.md": oarlock_manual.reference,
    **{f"man/man1/{command}.1": partial(manual.man_page, command) for command in manual.COMMANDS},
    **{f"man/slurm/man1/{command}.1": partial(manual.man_page, command) for command in manual.SLURM_COMMANDS},
    "man/man1/oarlock.1": oarlock_manual.overview,
    **{f"man/man1/oarlock-{name}.1": partial(oarlock_manual.man_page, name) for name in oarlock_manual.subcommands()},
}


def main() -> None:
    """Write every page."""
    for name, page in PAGES.items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page())


if __name__ == "__main__":
    main()
