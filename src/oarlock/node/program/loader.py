"""How the node program gets to a node that has only `python3`: one line, a word back, then the sources.

The line prints a marker with a nonce and reads nothing before; the server sends nothing before it has seen the marker.
So neither what a login shell prints nor what it reads can do harm. Where the node has the Python of the server, the
modules are sent compiled as well: to compile them is half of what the start of the program costs. Each compiled module
is packed by itself, and all texts together: a start unpacks the modules that it needs, and texts where it uses them.

A program that a site installed holds the sources already, and says so in its marker; it is sent settings, never code.
"""

from __future__ import annotations

import json
import marshal
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import ModuleSpec
from typing import Any

WORD = "OARLOCK"
LONGEST_SETTINGS = 1 << 16
"""Bytes of the settings that an installed program is sent."""

# Between single quotes for any shell: no quote of that kind, no backslash, no exclamation mark, no newline.
_LINE = (
    "import os,sys,zlib;"
    'os.write(1,bytes([10,1])+b"{word} {nonce} "+("%x.%s"%(sys.hexversion,sys.implementation.cache_tag)).encode()'
    "+bytes([10]));"
    "i=sys.stdin.buffer;"
    "n=i.readline()or sys.exit(1);"  # a server that ends meanwhile sends nothing
    "exec(zlib.decompress(i.read(int(n))))"
)


def line(nonce: str) -> str:
    """Return the line that `python3 -I -S -c` runs on the node."""
    return _LINE.format(word=WORD, nonce=nonce)


def marker(nonce: str) -> bytes:
    """Return the bytes after which the node reads; its Python (`python_build`) and a newline follow them."""
    return f"\n\x01{WORD} {nonce} ".encode()


def python_build() -> str:
    """Return what two interpreters have in common that load each other's compiled code."""
    return f"{sys.hexversion:x}.{sys.implementation.cache_tag}"


def compile_modules(sources: Mapping[str, str]) -> dict[str, bytes]:
    """Compile the modules for a node that has this very Python, and pack each."""
    packages = _packages(sources)
    return {
        name: zlib.compress(marshal.dumps(compile(text, _file(name, packages), "exec", dont_inherit=True)), 6)
        for name, text in sources.items()
    }


def pack_modules(sources: Mapping[str, str], compiled: Mapping[str, bytes]) -> bytes:
    """Pack what is the same for all nodes; `compiled` is empty where a node has another Python."""
    texts = zlib.compress(marshal.dumps(dict(sources), 2), 6)
    return marshal.dumps((list(sources), texts, dict(compiled)), 2)


def pack_program(
    loader: str, modules: bytes, settings: dict[str, Any], *, fingerprint: str = "", compiled: bytes = b""
) -> bytes:
    """Make what is sent after the marker: the length of what begins, that, and the modules.

    `loader` is the text of this module, `compiled` the same as `compile_modules` packs it. `fingerprint` names the
    modules.
    """
    first = f"import marshal;exec(marshal.loads(zlib.decompress(i.read({len(compiled)}))))" if compiled else loader
    call = f"start(i.read({len(modules)}), {settings!r}, {fingerprint!r})"
    data = zlib.compress(f"{first}\n{call}\n".encode(), 6)
    return b"%d\n" % len(data) + data + compiled + modules


def installed_marker() -> bytes:
    """Return the bytes that an installed program prints first; its fingerprint and a newline follow them."""
    return f"\n\x01{WORD} installed ".encode()


def installable(
    sources: dict[str, str], fixed: dict[str, Any], *, fingerprint: str, about: str, python: str = "/usr/bin/python3"
) -> str:
    """Make the file that a site puts on its nodes; `fixed` are the settings that no server can change there."""
    head = f"#!{python} -IS\n# {about}\n"
    return f"{head}{sources['oarlock.node.program.loader']}\nserve_installed({sources!r}, {fixed!r}, {fingerprint!r})\n"


class PackedSources(Mapping[str, str]):
    """The texts of modules, unpacked when one is read for the first time."""

    def __init__(self, names: list[str], packed: bytes) -> None:
        self._names, self._packed = frozenset(names), packed
        self._texts: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        if not self._texts:
            self._texts = marshal.loads(zlib.decompress(self._packed))  # noqa: S302 - from the server, as the line is
        return self._texts[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class SourceImporter:
    """Imports modules from texts; tracebacks show their lines."""

    def __init__(self, sources: Mapping[str, str], compiled: Mapping[str, bytes] | None = None) -> None:
        self._sources, self._compiled = sources, dict(compiled or {})
        self._packages = _packages(sources)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:  # noqa: ARG002
        """Find a module among the texts, as the import system asks."""
        if name not in self._sources:
            return None
        file = _file(name, self._packages)
        spec = ModuleSpec(name, self, origin=file, is_package=name in self._packages)  # type: ignore[arg-type]
        spec.has_location = True
        return spec

    def create_module(self, spec: ModuleSpec) -> None:
        """Leave the making of the module to the import system."""

    def exec_module(self, module: Any) -> None:
        """Run the text in its module."""
        name, file = module.__spec__.name, module.__spec__.origin
        packed = self._compiled.pop(name, None)  # never needed again
        if packed:
            code = marshal.loads(zlib.decompress(packed))  # noqa: S302
        else:
            code = compile(self._sources[name], file, "exec", dont_inherit=True)
        exec(code, module.__dict__)  # noqa: S102

    def get_source(self, name: str) -> str:
        """Return the source of a module, for a traceback."""
        return self._sources[name]


def _packages(sources: Iterable[str]) -> frozenset[str]:
    return frozenset(name.rpartition(".")[0] for name in sources)


def _file(name: str, packages: frozenset[str]) -> str:
    return name.replace(".", "/") + ("/__init__.py" if name in packages else ".py")


def _with_lines(*problem: Any) -> None:
    """Print a traceback with the lines of our sources, which the built-in way does not before 3.13."""
    import traceback

    traceback.print_exception(*problem)


def unpack_modules(modules: bytes) -> tuple[PackedSources, dict[str, bytes]]:
    """Return the sources, and the compiled modules, each still packed."""
    names, texts, compiled = marshal.loads(modules)  # noqa: S302 - from the server, as this line is
    return PackedSources(names, texts), compiled


def start(modules: bytes, settings: dict[str, Any], fingerprint: str) -> None:
    """Run the node program from what was sent. Only here does this module run on the node."""
    sources, compiled = unpack_modules(modules)
    _run(sources, lambda: settings, fingerprint, compiled)


def serve_installed(sources: dict[str, str], fixed: dict[str, Any], fingerprint: str) -> None:
    """Run the node program that was installed here, with what the server may choose of its settings.

    `fingerprint` names the sources; whoever made the file knows it, so that nothing is computed here.
    """
    import os

    def read_settings() -> dict[str, Any]:
        os.write(1, installed_marker() + fingerprint.encode() + b"\n")
        line = sys.stdin.buffer.readline(LONGEST_SETTINGS)
        if not line:
            sys.exit(1)  # the server does not want this program, and has said why
        chosen = json.loads(line)
        if QUESTION in chosen:
            _describe_host(chosen[QUESTION])
        return {**{name: chosen[name] for name in CHOSEN}, **fixed}

    _run(sources, read_settings, fingerprint)


QUESTION = "describe"
"""In place of settings: `oarlock doctor` asks what the host is like, and the program ends after its answer."""


def _describe_host(request: dict[str, Any]) -> None:
    """Print what the host is like, and end. Only names are asked for, and nothing is started or written."""
    from oarlock.node.sources.host import host_facts

    sys.stdout.write(json.dumps(host_facts.describe(request)) + "\n")
    sys.stdout.flush()
    sys.exit(0)


CHOSEN = ("node", "silence", "idle", "sample_period", "sample_sources", "check", "instance", "spool_key", "files_kept")
"""The settings of an installed program that are the server's to choose."""


def run_command(sources: dict[str, str], packages: Mapping[str, str]) -> None:
    """Run the command of a job that this file is called as, of its package: `node/program/tools.py` writes it."""
    import importlib
    import os

    sys.meta_path.insert(0, SourceImporter(sources))
    name = os.path.basename(sys.argv[0])
    command = importlib.import_module(f"{packages[name]}.{name}")
    sys.exit(command.main())


def _run(
    sources: Mapping[str, str],
    read_settings: Callable[[], dict[str, Any]],
    fingerprint: str,
    compiled: Mapping[str, bytes] | None = None,
) -> None:
    import os

    sys.meta_path.insert(0, SourceImporter(sources, compiled))
    sys.excepthook = _with_lines
    settings = read_settings()
    channel = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)  # whatever is printed by mistake must not become part of a frame
    os.close(null)
    from oarlock.node.program import program
    from oarlock.node.wire import messages

    program.main(messages.parse_settings(settings), *channel, sources, fingerprint)
