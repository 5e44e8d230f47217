"""The loader: a line for any shell, and imports from what was sent."""

import subprocess
import sys
import traceback

import pytest

from oarlock.node.program.loader import SourceImporter, line, marker, pack_program
from oarlock.server.nodes.channel import node_sources


def test_the_line_survives_every_shell_between_single_quotes():
    assert not set("'\\!\n") & set(line("00ff"))


def test_the_line_says_its_marker_and_runs_what_it_is_sent():
    program = pack_program(
        {"oarlock.node.program.loader": "def start(sources, settings): print(settings['a'])"}, {"a": "hé"}
    )
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", line("00ff")], input=program, capture_output=True, timeout=20, check=True
    )
    assert ran.stdout == marker("00ff") + f"{sys.hexversion:x}\nhé\n".encode()


def test_everything_that_travels_imports_on_the_other_side():
    sources = node_sources()
    ran = subprocess.run(
        [sys.executable, "-I", "-S", "-c", line("1")],
        input=pack_program(
            {**sources, "oarlock.node.program.loader": sources["oarlock.node.program.loader"] + HARMLESS}, {}
        ),
        capture_output=True,
        timeout=20,
        check=False,
    )
    assert (ran.stdout.splitlines()[-1], ran.stderr) == (str(len(sources)).encode(), b"")


HARMLESS = """
def start(sources, settings):
    import importlib
    sys.meta_path.insert(0, SourceImporter(sources))
    for name in sources:
        importlib.import_module(name)
    print(len(sources))
"""


def test_a_traceback_shows_the_lines_that_were_sent():
    sys.meta_path.insert(
        0, finder := SourceImporter({"far_away": "", "far_away.place": "def f():\n    raise KeyError('x')\n"})
    )
    try:
        from far_away.place import f  # type: ignore[import-not-found]

        with pytest.raises(KeyError) as problem:
            f()
        shown = "".join(traceback.format_exception(problem.value))
    finally:
        sys.meta_path.remove(finder)
    assert "File \"far_away/place.py\", line 2, in f\n    raise KeyError('x')" in shown
