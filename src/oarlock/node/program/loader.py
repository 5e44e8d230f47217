"""How the node program gets to a node that has only `python3`: one line, a word back, then the sources.

The line prints a marker with a nonce and reads nothing before; the server sends nothing before it has seen the marker.
So neither what a login shell prints nor what it reads can do harm.

A program that a site installed holds the sources already, and says so in its marker; it is sent settings, never code.
"""

from __future__ import annotations

import json
import sys
import zlib
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any

WORD = "OARLOCK"
LONGEST_SETTINGS = 1 << 16
"""Bytes of the settings that an installed program is sent."""

# Between single quotes for any shell: no quote of that kind, no backslash, no exclamation mark, no newline.
_LINE = (
    "import os,sys,zlib;"
    'os.write(1,bytes([10,1])+b"{word} {nonce} %x"%sys.hexversion+bytes([10]));'
    "i=sys.stdin.buffer;"
    "exec(zlib.decompress(i.read(int(i.readline()))))"
)


def line(nonce: str) -> str:
    """Return the line that `python3 -I -S -c` runs on the node."""
    return _LINE.format(word=WORD, nonce=nonce)


def marker(nonce: str) -> bytes:
    """Return the bytes after which the node reads; its Python version and a newline follow them."""
    return f"\n\x01{WORD} {nonce} ".encode()


def pack_program(sources: dict[str, str], settings: dict[str, Any]) -> bytes:
    """Make what is sent after the marker: a length, then this module, the others and the settings, compressed."""
    start = f"\nstart({sources!r}, {settings!r})\n"
    data = zlib.compress((sources["oarlock.node.program.loader"] + start).encode(), 6)
    return b"%d\n" % len(data) + data


def installed_marker() -> bytes:
    """Return the bytes that an installed program prints first; its fingerprint and a newline follow them."""
    return f"\n\x01{WORD} installed ".encode()


def installable(
    sources: dict[str, str], fixed: dict[str, Any], *, fingerprint: str, about: str, python: str = "/usr/bin/python3"
) -> str:
    """Make the file that a site puts on its nodes; `fixed` are the settings that no server can change there."""
    head = f"#!{python} -IS\n# {about}\n"
    return f"{head}{sources['oarlock.node.program.loader']}\nserve_installed({sources!r}, {fixed!r}, {fingerprint!r})\n"


class SourceImporter:
    """Imports modules from texts; tracebacks show their lines."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Find a module among the texts, as the import system asks."""
        if name not in self._sources:
            return None
        package = any(other.startswith(name + ".") for other in self._sources)
        file = name.replace(".", "/") + ("/__init__.py" if package else ".py")
        spec = ModuleSpec(name, self, origin=file, is_package=package)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the making of the module to the import system."""

    def exec_module(self, module: Any) -> None:
        """Run the text in its module."""
        spec = module.__spec__
        exec(compile(self._sources[spec.name], spec.origin, "exec", dont_inherit=True), module.__dict__)  # noqa: S102

    def get_source(self, name: str) -> str:
        """Return the source of a module, for a traceback."""
        return self._sources[name]


def _with_lines(*problem: Any) -> None:
    """Print a traceback with the lines of our sources, which the built-in way does not before 3.13."""
    import traceback

    traceback.print_exception(*problem)


def start(sources: dict[str, str], settings: dict[str, Any]) -> None:
    """Run the node program from what was sent. Only here does this module run on the node."""
    _run(sources, lambda: settings)


def serve_installed(sources: dict[str, str], fixed: dict[str, Any], fingerprint: str) -> None:
    """Run the node program that was installed here, with what the server may choose of its settings.

    `fingerprint` names the sources; whoever made the file knows it, so that nothing is computed here.
    """
    import os

    def read_settings() -> dict[str, Any]:
        os.write(1, installed_marker() + fingerprint.encode() + b"\n")
        chosen = json.loads(sys.stdin.buffer.readline(LONGEST_SETTINGS))
        return {**{name: chosen[name] for name in CHOSEN}, **fixed}

    _run(sources, read_settings)


CHOSEN = ("node", "silence", "idle", "sample_period", "check", "instance", "spool_key")
"""The settings of an installed program that are the server's to choose."""


def run_command(sources: dict[str, str]) -> None:
    """Run the command of a job that this file is called as: `node/program/tools.py` writes it."""
    import importlib
    import os

    sys.meta_path.insert(0, SourceImporter(sources))
    command = importlib.import_module(f"oarlock.cli.{os.path.basename(sys.argv[0])}")
    sys.exit(command.main())


def _run(sources: dict[str, str], read_settings: Callable[[], dict[str, Any]]) -> None:
    import os

    sys.meta_path.insert(0, SourceImporter(sources))
    sys.excepthook = _with_lines
    settings = read_settings()
    channel = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # whatever is printed by mistake must not become part of a frame
    os.close(null)
    from oarlock.node.program import program
    from oarlock.node.wire import messages

    program.main(messages.parse_settings(settings), *channel, sources)
