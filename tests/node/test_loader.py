"""The loader: a line for any shell, and imports from what was sent."""

import subprocess
import sys
import traceback

import pytest

from oarlock.node.program.loader import (
    SourceImporter,
    compile_modules,
    line,
    marker,
    pack_modules,
    pack_program,
    python_build,
)
from oarlock.server.nodes.channel import node_sources


def test_the_line_survives_every_shell_between_single_quotes():
    assert not set("'\\!\n") & set(line("00ff"))


def run_line(loader, sources, compiled=None, settings=None):
    program = pack_program(loader, pack_modules(sources, compiled or {}), settings or {})
    command = [sys.executable, "-I", "-S", "-c", line("00ff")]
    return subprocess.run(command, input=program, capture_output=True, timeout=20, check=False)


def test_the_line_says_its_marker_and_runs_what_it_is_sent():
    loader = "def start(modules, settings): print(settings['a'], len(modules))"
    ran = run_line(loader, {"m": "1"}, settings={"a": "hé"})
    expected = marker("00ff") + f"{python_build()}\nhé {len(pack_modules({'m': '1'}, {}))}\n".encode()
    assert (ran.stdout, ran.stderr) == (expected, b"")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_everything_that_travels_imports_on_the_other_side(is_compiled):
    sources = node_sources()
    loader = sources["oarlock.node.program.loader"] + HARMLESS
    ran = run_line(loader, sources, compile_modules(sources) if is_compiled else {})
    assert (ran.stdout.splitlines()[-1], ran.stderr) == (f"{len(sources)} {is_compiled}".encode(), b"")


HARMLESS = """
def start(modules, settings):
    import importlib
    sources, compiled = marshal.loads(zlib.decompress(modules))
    if compiled:  # none is compiled again
        globals().update(compile=None)
    sys.meta_path.insert(0, SourceImporter(sources, compiled))
    for name in sources:
        importlib.import_module(name)
    print(len(sources), bool(compiled))
"""


@pytest.mark.parametrize("is_compiled", [True, False])
def test_a_traceback_shows_the_lines_that_were_sent(is_compiled):
    sources = {"far_away": "", "far_away.place": "def f():\n    raise KeyError('x')\n"}
    sys.meta_path.insert(0, finder := SourceImporter(sources, compile_modules(sources) if is_compiled else None))
    for name in sources:
        sys.modules.pop(name, None)
    try:
        from far_away.place import f  # type: ignore[import-not-found]

        with pytest.raises(KeyError) as problem:
            f()
        shown = "".join(traceback.format_exception(problem.value))
    finally:
        sys.meta_path.remove(finder)
    assert "File \"far_away/place.py\", line 2, in f\n    raise KeyError('x')" in shown
