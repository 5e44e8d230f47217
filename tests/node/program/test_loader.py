"""The loader: a line for any shell, and imports from what was sent."""

import subprocess
import sys
import traceback
from pathlib import Path

import pytest

from oarlock.node.program.loader import (
    SourceImporter,
    compile_modules,
    line,
    marker,
    pack_modules,
    pack_program,
    python_build,
    unpack_modules,
)
from oarlock.node.program.tools import write_tools
from oarlock.server.nodes.channel import _packed_modules, node_sources


def test_the_line_survives_every_shell_between_single_quotes():
    assert not set("'\\!\n") & set(line("00ff"))


def run_line(loader, sources, compiled=None, settings=None):
    modules = pack_modules(sources, compiled or {})
    program = pack_program(loader, modules, settings or {}, compiled=(compiled or {}).get(LOADER, b""))
    command = [sys.executable, "-I", "-S", "-c", line("00ff")]
    return subprocess.run(command, input=program, capture_output=True, timeout=20, check=False)


def test_the_line_says_its_marker_and_runs_what_it_is_sent():
    loader = "def start(modules, settings, fingerprint): print(settings['a'], len(modules))"
    ran = run_line(loader, {"m": "1"}, settings={"a": "hé"})
    expected = marker("00ff") + f"{python_build()}\nhé {len(pack_modules({'m': '1'}, {}))}\n".encode()
    assert (ran.stdout, ran.stderr) == (expected, b"")


@pytest.mark.parametrize("is_compiled", [True, False])
def test_everything_that_travels_imports_on_the_other_side(is_compiled):
    sources = dict(node_sources())
    sources[LOADER] += HARMLESS
    ran = run_line(sources[LOADER], sources, compile_modules(sources) if is_compiled else {})
    assert (ran.stdout.splitlines()[-1], ran.stderr) == (f"{len(sources)} {is_compiled}".encode(), b"")


LOADER = "oarlock.node.program.loader"
HARMLESS = """
def start(modules, settings, fingerprint):
    import importlib
    sources, compiled = unpack_modules(modules)
    if compiled:  # none is compiled again
        globals().update(compile=None)
    sys.meta_path.insert(0, SourceImporter(sources, compiled))
    for name in sources:
        importlib.import_module(name)
    print(len(sources), bool(compiled))
"""


def test_the_server_compiles_what_its_nodes_import_and_no_more():
    _, compiled = unpack_modules(_packed_modules(same_python=True))
    assert {name for name in node_sources() if name.startswith("oarlock.node")} | {"oarlock"} == set(compiled)


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


def run_tool(folder, name):
    return subprocess.run([f"{folder}/{name}", "--help"], capture_output=True, text=True, timeout=20, check=False)


def test_commands_of_jobs_are_one_file_written_when_it_changed(tmp_path):
    folder, sources = str(tmp_path / "tools"), node_sources()
    write_tools(folder, sources, "one")
    file, written = tmp_path / "tools/oarsh", (tmp_path / "tools/oarsh").stat()
    assert "Usage: srun" in run_tool(folder, "slurm/srun").stdout
    write_tools(folder, sources, "one")
    after = file.stat()  # its date of access changed: it was read to be run
    assert (after.st_ino, after.st_mtime_ns, after.st_ctime_ns) == (
        written.st_ino,
        written.st_mtime_ns,
        written.st_ctime_ns,
    )
    file.write_bytes(file.read_bytes()[:-1])  # as after a power cut
    (tmp_path / "tools/oarcp").unlink()
    (tmp_path / "tools/oarcp").write_text("of an older program, which had a file for each")
    write_tools(folder, sources, "one")
    assert (file.stat().st_size, (tmp_path / "tools/oarcp").readlink()) == (written.st_size, Path("oarsh"))
    write_tools(folder, sources, "other")
    assert "# other\n" in file.read_text()
    assert run_tool(folder, "oarcp").returncode == 0
