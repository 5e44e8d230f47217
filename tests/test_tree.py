"""Rules about the tree that import-linter cannot say."""

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from oarlock.model.job import JobState
from oarlock.model.job_type import JobType

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "oarlock"
EVERYTHING = sorted(SOURCE.rglob("*.py"))

parsed = functools.cache(ast.parse)
nodes = functools.cache(lambda text: list(ast.walk(parsed(text))))
ON_NODES = sorted((SOURCE / "node").rglob("*.py"))
OF_CLIENTS = (
    "minimal_http.py",
    "minimal_tls.py",
    "munge.py",
    "client.py",
    "client_connection.py",
    "server/login_relay.py",
)
STDLIB_ONLY = [*ON_NODES, *(SOURCE / name for name in OF_CLIENTS)]
DATABASES = {"sqlalchemy", "alembic", "sqlite3", "psycopg"}
PROCESS_MODULES = {"subprocess", "multiprocessing", "pty"}
PROCESS_CALL = re.compile(r"os\.(fork|forkpty|system|popen|posix_spawnp?|exec[lv]p?e?|spawn[lv]p?e?)")
# A file without any of these words need not be parsed to know that it does neither.
MAY_MAKE_PROCESSES = re.compile(r"\bos\b|create_subprocess|" + "|".join(sorted(PROCESS_MODULES)))
MAY_EXECUTE = re.compile(r"\b(eval|exec|compile|__import__|pickle|marshal|shelve|runpy|code|yaml)\b")
# A migration says what was true on its day, whatever the model becomes.
# Commands need only the standard library, which the model does not: Slurm's words are made of what the server answers.
STATES_MAY_BE_QUOTED = ("model/job.py", "store/queries/job/jobs.py", "store/migrations/", "cli/slurm/job_table.py")
# "Hold" and "Error" are also plain words; these can only be states.
STATE_NAMES = {str(state) for state in JobState} - {"Hold", "Error"}

# Also the names of a queue, of columns of resources, of fields of admission rules and quotas, of reasons to wait.
TYPES_ELSEWHERE = {
    JobType.BESTEFFORT,
    JobType.DEPLOY,
    JobType.CONTAINER,
    JobType.DEADLINE,
    JobType.QOS,
    JobType.STATE,
    JobType.DEPENDENCY,
}


def imported(text: str) -> Iterator[str]:
    """List every module that a file imports, at its top or later, by its full name."""
    for node in nodes(text):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:  # a relative import stays in its own package
            yield node.module or ""


def strangers(text: str, *allowed: str) -> set[str]:
    """Give imports that are neither of the standard library nor below one of the modules `allowed`."""
    names = set(imported(text))
    return {
        n
        for n in names
        if n.split(".")[0] not in sys.stdlib_module_names and not any(f"{n}.".startswith(f"{one}.") for one in allowed)
    }


def process_makers(text: str) -> set[str]:
    """Give what a file uses to start processes."""
    if not MAY_MAKE_PROCESSES.search(text):
        return set()
    tree = nodes(text)
    modules = {name for name in imported(text) if name.split(".")[0] in PROCESS_MODULES}
    taken = {f"os.{alias.name}" for node in tree if isinstance(node, ast.ImportFrom) and node.module == "os"
             for alias in node.names}  # fmt: skip
    # To write every attribute out would take seconds: of the long ones only those are looked at that can matter.
    used = {ast.unparse(node) for node in tree if isinstance(node, ast.Attribute)
            and (isinstance(node.value, ast.Name) or "create_subprocess" in node.attr)}  # fmt: skip
    return modules | {name for name in taken | used if PROCESS_CALL.fullmatch(name) or "create_subprocess" in name}


def executors(text: str) -> set[str]:
    """Give what a file uses that could turn data into code."""
    if not MAY_EXECUTE.search(text):
        return set()
    tree = nodes(text)
    calls = (node.func for node in tree if isinstance(node, ast.Call))
    called = {function.id for function in calls if isinstance(function, ast.Name)}
    modules = {name.split(".")[0] for name in imported(text)}
    return (called & {"eval", "exec", "compile", "__import__"}) | (
        modules & {"pickle", "marshal", "shelve", "runpy", "code", "yaml"}
    )


def quoted_states(text: str) -> set[str]:
    """Give the state names that stand in a file as texts."""
    constants = {node.value for node in nodes(text) if isinstance(node, ast.Constant)}
    return {value for value in constants if isinstance(value, str)} & STATE_NAMES


def quoted_types(text: str) -> set[str]:
    """Return the job types that stand in a file as texts, alone or with `=` behind them."""
    constants = {node.value for node in nodes(text) if isinstance(node, ast.Constant)}
    return {
        word
        for word in JobType
        for value in constants
        if isinstance(value, str) and (value.startswith(f"{word}=") or (value == word and word not in TYPES_ELSEWHERE))
    }


def place(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.parametrize("path", STDLIB_ONLY, ids=place)
def test_node_and_client_need_only_the_standard_library(path):
    of_clients = ["oarlock.client_connection", "oarlock.minimal_http", "oarlock.minimal_tls", "oarlock.munge"]
    allowed = ["oarlock.node"] if path in ON_NODES else of_clients
    assert strangers(path.read_text(), *allowed) == set()


@pytest.mark.parametrize("path", ON_NODES, ids=place)
def test_what_travels_to_nodes_is_python_3_9(path):
    ast.parse(path.read_text(), feature_version=(3, 9))


def test_sql_stands_only_in_store():
    users = {place(path) for path in EVERYTHING if {n.split(".")[0] for n in imported(path.read_text())} & DATABASES}
    assert {name for name in users if not name.startswith("store/")} == set()


def test_processes_are_started_only_where_it_is_allowed():
    makers = {place(path) for path in EVERYTHING if process_makers(path.read_text())}
    allowed = (
        "node/",
        "server/nodes",
        "server/rules/python_rules.py",
        "server/effects/programs.py",
        "server/collecting/worker.py",
        "server/planning/client.py",
        "server/backups.py",
        "server/setup/",
        "server/doctor/",
        "server/editor.py",
        "server/passwords/",  # PAM, whose modules may hang or crash
        "cli/jobs/oarcp.py",  # becomes scp
        "cli/slurm/scontrol.py",  # on a node, becomes the scontrol that follows in PATH
        "cli/subcommands/instance/demo_shell.py",  # oarsub, as the user of the demonstration
        "cli/submitting/job_keys.py",  # ssh-keygen, on the keys of the user
    )
    assert {name for name in makers if not name.startswith(allowed)} == set()


def test_nothing_that_is_read_is_executed():
    used = {place(path): found for path in EVERYTHING if (found := executors(path.read_text()))}
    # A trusted file in its own process; the node program as it arrives, as text or compiled, which asks for one of two
    # modules by name.
    assert used == {
        "server/rules/rule_program.py": {"runpy"},
        "node/program/loader.py": {"compile", "exec", "marshal"},
        "node/wire/messages.py": {"__import__"},
    }


def test_job_states_are_named_by_the_model_not_by_quoted_texts():
    quoting = {
        name: found for path in EVERYTHING if (found := quoted_states(path.read_text())) and (name := place(path))
    }
    assert {name: found for name, found in quoting.items() if not name.startswith(STATES_MAY_BE_QUOTED)} == {}


def test_job_types_are_named_by_the_model_not_by_quoted_texts():
    quoting = {place(path): found for path in EVERYTHING if (found := quoted_types(path.read_text()))}
    # Commands need only the standard library; the demo submits what a user would type.
    allowed = ("model/job_type.py", "cli/")
    assert {name: found for name, found in quoting.items() if not name.startswith(allowed)} == {}


def test_these_checks_see_what_they_look_for():
    assert strangers("import msgspec, os.path\ndef f():\n    from oarlock.store import x", "oarlock.node") == {
        "msgspec",
        "oarlock.store",
    }
    assert strangers("from oarlock.node.cgroup.drivers import x\nfrom . import y\nimport json", "oarlock.node") == set()
    assert strangers("import oarlock.nodes", "oarlock.node") == {"oarlock.nodes"}
    assert process_makers("import subprocess\nfrom os import execv\nimport os\nos.fork()\nos.path.join()") == {
        "subprocess",
        "os.execv",
        "os.fork",
    }
    assert process_makers("import asyncio\nasyncio.create_subprocess_exec('x')") == {"asyncio.create_subprocess_exec"}
    assert executors("import pickle\nx = eval('1') + re.compile('y')") == {"pickle", "eval"}
    assert canned_records("from tests import canned\nP = 'x/oar2-golden'") == {"tests.canned"}
    assert canned_records("from types import SimpleNamespace\nfrom x import needs_golden") == {"SimpleNamespace"}
    assert canned_records("from tests.canned import ok") == set()
    assert quoted_types("if 'noop' in job.types or name.startswith('inner='): say('noop jobs', 'deploy')") == {
        "noop",
        "inner",
    }
    assert quoted_states("if job.state == 'Waiting': say('Error: Waiting for you')") == {"Waiting"}


CANNED = {"tests.canned", "tests.cli.conftest"}


def canned_records(text: str) -> set[str]:
    """Return what a test file takes canned answers from, if it also looks at recorded outputs of OAR."""
    if "golden" not in text:
        return set()
    tree = nodes(text)
    texts = {node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = {alias.name for node in tree if isinstance(node, ast.ImportFrom) for alias in node.names}
    modules = set(imported(text)) | {f"tests.{name}" for name in names}
    of_records = any("oar2-golden" in one for one in texts) or "needs_golden" in names or "golden" in names
    of_records = of_records or any(module.startswith("tests.golden") for module in modules)
    fakes = {"SimpleNamespace", "Mock", "MagicMock"} & names
    return (modules & CANNED) | fakes if of_records else set()


def test_recorded_outputs_are_held_against_live_values_not_canned_ones():
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path.name != "test_tree.py"]
    used = {path.relative_to(ROOT).as_posix(): found for path in tests if (found := canned_records(path.read_text()))}
    assert used == {}
    # The commands' own tests answer from a can: no record belongs there.
    assert [path.name for path in (ROOT / "tests" / "cli").glob("*.py") if "oar2-golden" in path.read_text()] == []


BREACHES = [
    ("model/job.py", "import oarlock.lang", "oarlock.model.job -> oarlock.lang"),
    ("plan/__init__.py", "import time", "oarlock.plan -> time"),
    ("plan/__init__.py", "import oarlock.config", "oarlock.plan -> oarlock.config"),
    ("store/__init__.py", "import oarlock.plan", "oarlock.store -> oarlock.plan"),
    ("plan/pass_state.py", "import oarlock.plan.planner", "oarlock.plan.pass_state -> oarlock.plan.planner"),
]


def test_imports_that_point_the_wrong_way_are_found(tmp_path):
    shutil.copytree(SOURCE, tmp_path / "oarlock", ignore=shutil.ignore_patterns("__pycache__"))
    for file, line, _ in BREACHES:
        with (tmp_path / "oarlock" / file).open("a") as broken:
            broken.write(f"\n{line}\n")
    lint = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run(
        [lint, "--config", ROOT / "pyproject.toml", "--no-cache"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)}, cwd=tmp_path,
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert [told for _, _, told in BREACHES if told not in ran.stdout] == []


@functools.cache
def import_graph() -> dict[str, set[str]]:
    """Return which modules of the package each of them imports, also late and for types alone."""
    paths = {".".join(path.relative_to(SOURCE.parent).with_suffix("").parts): path for path in EVERYTHING}
    modules = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph: dict[str, set[str]] = {}
    for name, path in modules.items():
        edges: set[str] = set()
        for node in nodes(path.read_text()):
            if isinstance(node, ast.Import):
                edges |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                inside = {f"{node.module}.{alias.name}" for alias in node.names}
                edges |= {full if full in modules else node.module for full in inside}
        graph[name] = (edges & modules.keys()) - {name}
    return graph


def cycles(graph: dict[str, set[str]]) -> set[str]:
    """Return the modules from which a way of imports leads back to themselves."""
    return {name for name in graph if name in _reached(name, graph)}


def _reached(start: str, graph: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - reached
        reached |= new
        ahead.extend(new)
    return reached


def test_no_modules_import_each_other_in_a_circle():
    assert cycles(import_graph()) == set()


def folded_graph(package: str, graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return which modules and folders of a package import each other; a folder stands for all that is inside of it."""
    inside = f"{package}."

    def child(name: str) -> str:
        return name.removeprefix(inside).split(".")[0] if name.startswith(inside) else ""

    folded: dict[str, set[str]] = {}
    for name, imports in graph.items():
        if child(name):
            folded.setdefault(child(name), set()).update({child(other) for other in imports} - {"", child(name)})
    return folded


def test_folders_inside_a_package_import_each_other_one_way():
    graph = import_graph()
    packages = {name.rpartition(".")[0] for name in graph} - {"", "oarlock"}
    circles = {package: cycles(folded_graph(package, graph)) for package in packages}
    assert {package: names for package, names in circles.items() if names} == {}


def test_folders_that_import_each_other_are_noticed():
    graph = {"a.b.x": {"a.c.y", "a.d"}, "a.b.z": set(), "a.c.y": {"a.b.z"}, "a.d": {"q"}, "q": {"a.b.x"}}
    assert cycles(graph) == {"a.b.x", "a.d", "q"}
    assert cycles(folded_graph("a", graph)) == {"b", "c"}


MOST_MODULES = 18  # of a folder; 5 to 15 is what one looks for


def test_a_folder_is_small_enough_to_read_its_names():
    folders = {path.parent for path in EVERYTHING} - {SOURCE / "store" / "migrations" / "versions"}
    sizes = {
        place(folder): len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) for folder in folders
    }
    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}


def test_a_circle_of_imports_is_noticed():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set()}) == {"b", "c"}


LONGEST_TEST_NAME = 70


def test_names_of_tests_are_short_enough_to_read():
    names = {
        (path.name, name)
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE)
    }
    assert len(names) > 1000
    assert [f"{path}: {name}" for path, name in names if len(name) > LONGEST_TEST_NAME] == []
