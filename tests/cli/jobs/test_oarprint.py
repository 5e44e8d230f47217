"""oarprint: the resources of a job, a line for each value of a property."""

import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.cli.jobs.oarprint import VARIABLE, lines
from tests.golden.records import RECORDS, record
from tests.lang.cases import needs_golden

ROOT = Path(__file__).resolve().parents[3]
RESOURCES = """\
 core = '18' , cpu = '5' , cpuset = '1' , host = 'node3' , mem = '48' , switch = ''
 core = '1' , cpu = '1' , cpuset = '0' , host = 'node1' , mem = '16' , switch = ''
 core = '17' , cpu = '5' , cpuset = '0' , host = 'node3' , mem = '48' , switch = ''
"""


@pytest.fixture
def oarprint(tmp_path):
    """Run the command where no server is."""

    def run(*words, stdin=b"", **variables):
        code = "import sys; from oarlock.cli.jobs.oarprint import main; sys.exit(main())"
        environment = {"PYTHONPATH": str(ROOT / "src"), "OARLOCK_SERVER": "/nowhere", "LANG": "C.UTF-8", **variables}
        return subprocess.run(
            [sys.executable, "-c", code, *words],
            env=environment, cwd=tmp_path, input=stdin, capture_output=True, timeout=60, check=False,
        )  # fmt: skip

    def ran(*words, stdin=b"", **variables):
        done = run(*words, stdin=stdin.encode() if isinstance(stdin, str) else stdin, **variables)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    return ran


@pytest.fixture
def file(tmp_path) -> Path:
    path = tmp_path / "resources"
    path.write_text(RESOURCES)
    return path


def test_in_a_job_the_file_of_its_resources_is_read(oarprint, file):
    assert oarprint("host", **{VARIABLE: str(file)}) == (0, "node1\nnode3\n", "")


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["host"], "node1\nnode3\n"),
        (["core"], "1\n17\n18\n"),
        (["host", "-P", "host,cpu,core", "-F", "host: % cpu: % core: %", "-C+"],
         "host: node1 cpu: 1 core: 1\nhost: node3 cpu: 5 core: 17+18\n"),
        (["core", "-P", "host,cpuset,mem", "-F", "%[%] (%)"], "node1[0] (16)\nnode3[0] (48)\nnode3[1] (48)\n"),
        (["host", "-P", "host,core"], "node1 1\nnode3 17,18\n"),
        (["host", "-P", "core", "-T", "@", "-F", "100% of @"], "100% of 1\n100% of 17,18\n"),
        (["host", "-F", "% and %"], "node1 and %\nnode3 and %\n"),
        (["host", "-P", "host,mem", "-F", "%"], "node1\nnode3\n"),
        (["host", "-F", "all the same"], "all the same\nall the same\n"),
        (["cpu", "-P", "switch", "-F", "<%>"], "<>\n<>\n"),
        (["-l"], "List of properties:\ncore, cpu, cpuset, host, mem, switch\n"),
    ],
)  # fmt: skip
def test_every_option_prints_as_its_help_says(oarprint, file, words, printed):
    assert oarprint(*words, "-f", str(file)) == (0, printed, "")
    assert oarprint(*words, "-f", "-", stdin=RESOURCES) == (0, printed, "")


def test_node2_comes_before_node10_and_values_may_hold_anything():
    resources = [{"host": host, "say": "it's 50% , or 'so'"} for host in ("node10", "node2", "front")]
    assert lines(resources, "host", ["host", "say"], "%: %", token="%", separator=",") == [
        "front: it's 50% , or 'so'",
        "node2: it's 50% , or 'so'",
        "node10: it's 50% , or 'so'",
    ]


def test_a_value_with_quotes_and_commas_is_read_whole(oarprint):
    line = " cputype = 'it's , or' , host = 'n1' \n"
    assert oarprint("host", "-P", "cputype,host", "-f", "-", stdin=line) == (0, "it's , or n1\n", "")


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        ([], "", "No property is named."),
        (["host", "core", "-f", "-"], "", "`core` is one word too many."),
        (["host"], "", f"${VARIABLE} is not set: this is not inside a job."),
        (["host", "-f", "absent"], "", "absent cannot be read: No such file or directory."),
        (["host", "-f", "/"], "", "/ cannot be read: Is a directory."),
        (["nosuch", "-f", "-"], RESOURCES, "No resource has a property `nosuch`."),
        (["host", "-P", "host,", "-f", "-"], RESOURCES, "No resource has a property ``."),
        (["host", "-T", "", "-f", "-"], RESOURCES, "-T is empty."),
        (["host", "-f", "-"], "no resource\n", "Line 1 does not describe a resource: `no resource`."),
        (["host", "-f", "-"], b"host = '\xff'\n", "Standard input cannot be read: byte 9 of it is not valid UTF-8."),
        (["-V"], "", "There is no option -V."),
        (["-P"], "", "-P needs a value."),
    ],
)
def test_what_cannot_be_printed_is_refused_with_a_way_out(oarprint, words, stdin, says):
    code, out, err = oarprint(*words, stdin=stdin)
    assert (code, out) == (1, "")
    first, *hint = err.splitlines()
    assert first == f"oarprint: {says}"
    assert hint


@pytest.mark.timeout(20)
@pytest.mark.parametrize("line", ["x" * (1 << 20), "a = 'b' , " * (1 << 17), "'" * (1 << 20)])
def test_a_megabyte_that_is_no_resource_is_refused_at_once(oarprint, line: str):
    code, out, err = oarprint("a", "-f", "-", stdin=line + "\n")
    assert (code, out, len(err) < 300) == (1, "", True)
    assert err.startswith(f"oarprint: Line 1 does not describe a resource: `{line[:40]}`.\n")


@pytest.mark.timeout(20)
def test_a_megabyte_of_quotes_in_a_value_is_read_at_once(oarprint):
    value = "a = '" * (1 << 18)
    assert oarprint("host", "-f", "-", stdin=f"host = '{value}'\n") == (0, f"{value}\n", "")


def test_values_of_any_length_are_sorted(oarprint):
    large = "9" * 10_000
    stdin = "".join(f"core = '{value}'\n" for value in (large, "07", "7", "10"))
    assert oarprint("core", "-f", "-", stdin=stdin) == (0, f"07\n7\n10\n{large}\n", "")


def test_a_job_without_resources_prints_nothing(oarprint):
    assert oarprint("host", "-f", "-", stdin="\n") == (0, "", "")


@needs_golden
def test_oars_own_output_is_printed_as_oar_printed_it(oarprint):
    told, piped = record("stat_p_oarprint"), record("stat_p").out
    words = told.words[told.words.index("oarprint") + 1 :]
    code, out, err = oarprint(*words, stdin=piped)
    # OAR 2.5.9 prints the lines in any order, though its help says that they are sorted.
    assert (code, out.splitlines(), err) == (told.code, sorted(told.out.splitlines()), "")
    assert oarprint("-V")[0] == record("version_oarprint").code
    seen = (RECORDS / "job_env.txt").read_text().partition("## oarprint\n")[2].splitlines()
    host = ["host", "-P", "host,cpu,core", "-F", "host: % cpu: % core: %", "-C+", "-f", "-"]
    assert oarprint(*host, stdin=RESOURCES)[1].splitlines() == seen[:2]
    assert oarprint("-l", "-f", "-", stdin=RESOURCES)[1].splitlines()[0] == seen[2]


@needs_golden
def test_oarprint_has_every_option_of_oars_help(oarprint):
    code, out, _ = oarprint("--help")
    letters = {line.split()[0] for line in record("help_oarprint").err.splitlines() if line.startswith("  -")}
    assert code == 0
    assert sorted(letter for letter in letters if f"  {letter}" not in out) == []
