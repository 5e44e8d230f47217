"""Slurm's options and scripts: what they become, and what is refused."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from oarlock.cli import slurm
from oarlock.cli.slurm.batch_script import OutputName, array_step, array_tasks, begin_text
from oarlock.cli.slurm.options import megabytes, seconds
from oarlock.client import RequestRefused
from oarlock.model.nodeset import unfold
from oarlock.node.slurm_tasks import TasksDoNotFit, place_tasks
from tests.canned import ok

ROOT = Path(__file__).resolve().parents[2]
ACCEPTED = ok({"job_ids": [7], "array_id": 7, "state": "Waiting"})


@pytest.fixture
def sbatch(run, server):
    """Submit a command with options; return what was sent to the server."""

    def ran(*words, **variables):
        server.says(ACCEPTED)
        done = run("slurm.sbatch", *words, "--wrap=true", **variables)
        assert done.code == 0, done.err
        return server.requests[-1].json

    return ran


@pytest.mark.parametrize(
    ("words", "resources"),
    [
        ("", ["/nodes=1/core=1"]),
        ("-N2", ["/nodes=2/core=1"]),
        ("-N 2 -n 5", ["/nodes=2/core=3"]),
        ("-N 2 --ntasks-per-node=8", ["/nodes=2/core=8"]),
        ("-n 16", ["/core=16"]),
        ("-n 16 --ntasks-per-node=4", ["/nodes=4/core=4"]),
        ("-c 8", ["/nodes=1/core=8"]),
        ("-N 3 --exclusive", ["/nodes=3"]),
        ("--gres=gpu:2", ["/nodes=1/gpu=2"]),
        ("-G 2 -c 8", ["/nodes=1/gpu=2/core=4"]),
        ("-N 2 --gpus-per-node=1 --ntasks-per-node=4", ["/nodes=2/gpu=1/core=4"]),
        ("-w n1,n[3-4]", ["/nodes=3/core=1"]),
    ],
)
def test_what_is_asked_for_becomes_a_request(sbatch, words, resources):
    assert sbatch(*words.split())["resources"] == resources


@pytest.mark.parametrize(
    ("cores", "resources"),
    [
        ([32] * 4, ["/nodes=1/core=32", "/nodes=2/core=16", "/nodes=4/core=8"]),
        ([16] * 2, ["/nodes=2/core=16"]),
        ([8, 8, 8, 32], ["/nodes=1/core=32", "/nodes=4/core=8"]),
        ([4], ["/nodes=1/core=32", "/nodes=2/core=16", "/nodes=4/core=8"]),  # none fits: the server says so
    ],
)
def test_tasks_with_cores_are_split_as_the_nodes_allow(run, server, cores, resources):
    nodes = [{"network_address": f"n{number}"} for number, count in enumerate(cores) for _ in range(count)]
    server.says(ok({"resources": nodes, "jobs": {}}), ACCEPTED)
    assert run("slurm.sbatch", "-n", "4", "-c", "8", "--wrap=true").code == 0
    assert server.requests[-1].json["resources"] == resources


@pytest.mark.parametrize(("words", "printed"), [((), "sbatch: Set default walltime.\n"), (("--quiet",), "")])
def test_what_rules_say_is_printed_once_and_not_when_quiet(run, server, words, printed):
    says = "Set default walltime."
    server.says(ok({"job_ids": [7], "array_id": 7, "state": "Waiting", "messages": [says, says]}))
    ran = run("slurm.sbatch", *words, "--wrap=true")
    assert (ran.code, ran.err) == (0, printed)


def test_the_limit_of_an_array_is_passed_on(sbatch):
    body = sbatch("-a", "0-9%3")
    assert (len(body["array"]), body["at_once"], body.get("types", [])) == (10, 3, [])


def test_variables_are_between_the_script_and_what_is_typed(run, server, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#SBATCH -J script -p script -A script\n")
    server.says(ACCEPTED)
    variables = {"SBATCH_PARTITION": "variable", "SBATCH_ACCOUNT": "variable", "SBATCH_POWER": "x"}
    ran = run("slurm.sbatch", "-A", "typed", "job.sh", **variables)
    body = server.requests[-1].json
    assert (body["name"], body["queue"], body["project"]) == ("script", "variable", "typed")
    assert ran.err == "sbatch: SBATCH_POWER is set and has no meaning here; it is left out.\n"


def test_lists_of_nodes_are_expanded(run):
    shown = run("slurm.scontrol", "show", "hostnames", SLURM_JOB_NODELIST="n[1-2],m7")
    assert (shown.code, shown.out) == (0, "n1\nn2\nm7\n")
    assert run("slurm.scontrol", "show", "hostnames", "a[09-10]").out == "a09\na10\n"
    assert run("slurm.scontrol", "show", "hostnames").code == 1


@pytest.mark.parametrize(
    "names", [["n1"], ["n1", "n2", "n3"], ["n9", "n10", "n12"], ["a08", "a09", "a10", "b1"], ["x", "y", "n1", "n2"]]
)
def test_the_nodes_of_a_job_are_folded_as_slurm_does(tmp_path, names):
    (tmp_path / "nodes").write_text("".join(f"{name}\n{name}\n" for name in names))
    text = begin_text(OutputName("x", "--output", "ada", []), None, truncate=False)
    text = f"{text.partition('a=$(mktemp')[0]}echo $SLURM_JOB_NODELIST $SLURM_TASKS_PER_NODE"
    variables = {"OAR_NODEFILE": str(tmp_path / "nodes"), "SLURM_NTASKS": "5", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(["sh", "-c", text], env=variables, capture_output=True, text=True, check=True)
    folded, tasks = ran.stdout.split()
    assert unfold(folded) == names
    assert sum(int(part.partition("(x")[0]) * int(part[:-1].partition("(x")[2] or 1) if "(x" in part else int(part)
               for part in tasks.split(",")) == 5  # fmt: skip


def test_options_become_fields(sbatch):
    words = "-p long -A physics -J heat -q high --requeue -H --signal=B:USR1@90 --mail-type=END,FAIL"
    files = "--mail-user=ada@lab -t 1-2:30 -o %x.%j.out -e %x.%j.err"
    body = sbatch(*words.split(), *files.split())
    assert body["resources"] == ["/nodes=1/core=1,walltime=26:30:00"]
    expected = {
        "queue": "long", "project": "physics", "name": "heat", "types": ["qos=high", "idempotent"], "hold": True,
        "signal": 10, "checkpoint": 90, "notify": "[END,ERROR]mail:ada@lab",
        "stdout": "%jobname%.%jobid%.out", "stderr": "%jobname%.%jobid%.err",
    }  # fmt: skip
    assert {name: body[name] for name in expected} == expected


def test_conditions_are_joined(sbatch):
    body = sbatch("-C", "ib&cputype=epyc", "-x", "n[1-2]", "-w", "n7")
    assert body["properties"] == (
        "(network_address IN ('n7')) AND (network_address NOT IN ('n1', 'n2')) AND (ib = 'YES' AND cputype = 'epyc')"
    )


def test_a_quote_stays_inside_of_a_condition(sbatch):
    assert sbatch("-C", "cputype=x' OR '1'='1")["properties"] == "(cputype = 'x'' OR ''1''=''1')"


def test_memory_is_asked_for_with_the_cores_that_it_goes_with(run, server):
    nodes = [{"network_address": name, "mem": size} for name, size, cores in (("s", 64, 16), ("l", 256, 16))
             for _ in range(cores)]  # fmt: skip
    for words, request, where, note in (
        (["--mem=4G"], "/nodes=1/core=1", "(mem >= 4)", ""),
        (["--mem=60G"], "/nodes=1/core=15", "(mem >= 60)", "15 cores of a node"),
        (["--mem=100G"], "/nodes=1/core=7", "(mem >= 100)", "7 cores of a node"),
        (["--mem=100G", "-c", "12"], "/nodes=1/core=12", "(mem >= 100)", ""),
        (["--mem-per-cpu=8G", "-n", "3"], "/core=3", "(mem >= 256)", ""),
    ):
        server.says(ok({"resources": nodes, "jobs": {}}), ACCEPTED)
        ran = run("slurm.sbatch", *words, "--wrap=true")
        body = server.requests[-1].json
        assert (body["resources"], body["properties"]) == ([request], where), words
        assert note in ran.err, words


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--comment=x"], "There is no option --comment."),
        (["-N", "2-4"], "--nodes=2-4 cannot be translated."),
        (["-n", "0"], "--ntasks: `0` is not a number above zero."),
        (["--gres=license:1"], "--gres=license:1 cannot be translated."),
        (["-t", "UNLIMITED"], "--time: `UNLIMITED` is not a time limit here."),
        (["-d", "singleton"], "--dependency=singleton cannot be translated."),
        (["-d", "afterok:1,afterany:2"], "--dependency=afterok:1,afterany:2 cannot be translated."),
        (["-a", "1-10%0"], "--array=TASKS%COUNT: `0` is not a number above zero."),
        (["-a", "0-9999999"], "--array=0-9999999 has too many tasks."),
        (["-a", "x"], "--array: `x` is not a list of numbers."),
        (["-o", "%t.out"], "--output=%t.out cannot be translated."),
        (["-C", "[a|b]"], "--constraint=[a|b] cannot be translated."),
        (["-C", "a;drop"], "--constraint=a;drop cannot be translated."),
        (["--begin=tomorrow"], "--begin=tomorrow cannot be translated."),
        (["--mail-type=TIME_LIMIT"], "--mail-type=TIME_LIMIT cannot be translated."),
        (["--mem=lots"], "--mem: `lots` is not a size of memory."),
        (["--signal=NONE@1"], "There is no signal `NONE`."),
    ],
)
def test_what_has_no_translation_is_refused_with_its_name(run, server, words, sentence):
    ran = run("slurm.sbatch", *words, "--wrap=true")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"sbatch: {sentence}\n  "), ran.err
    assert server.requests == []


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("echo no interpreter\n", "job.sh does not look like a batch script."),
        ("", "job.sh does not look like a batch script."),
        ("#!/bin/sh\r\ntrue\r\n", "The lines of job.sh end as on Windows (CR LF)."),
        ("#!/bin/sh\n#SBATCH --no-such\n", "There is no option --no-such."),
        ("#!/bin/sh\n#SBATCH -J 'open\n", "Line 2 of job.sh: No closing quotation."),
        ("#!/bin/sh\n#SBATCH nonsense\n", "The #SBATCH lines of job.sh have the word `nonsense`, which is no option."),
        ("#!/bin/sh\n" + "#" * 70_000, "job.sh has 70010 bytes."),
    ],
)
def test_a_bad_script_is_refused(run, server, tmp_path, text, sentence):
    (tmp_path / "job.sh").write_bytes(text.encode())
    ran = run("slurm.sbatch", "job.sh")
    assert ran.code == 1
    assert ran.err.startswith(f"sbatch: {sentence}"), ran.err
    assert server.requests == []


def test_lines_behind_the_first_command_and_other_comments_do_not_count(run, server, tmp_path):
    (tmp_path / "job.sh").write_text("#!/bin/sh\n# a comment\n\n##SBATCH -N 9\n#SBATCH -N 2\ntrue\n#SBATCH -N 5\n")
    server.says(ACCEPTED)
    assert run("slurm.sbatch", "job.sh").code == 0
    assert server.requests[-1].json["resources"] == ["/nodes=2/core=1"]


def test_only_what_is_exported_travels(sbatch):
    def names(*words):
        sent = sbatch(*words, MINE="1", OTHER="2", SLURM_JOB_ID="9")["environment"]
        return {name: sent[name] for name in ("MINE", "OTHER", "NEW", "SLURM_JOB_ID") if name in sent}

    assert names() == {"MINE": "1", "OTHER": "2"}
    assert names("--export=NONE") == {}
    assert names("--export=MINE,NEW=3") == {"MINE": "1", "NEW": "3"}
    assert names("--export=ALL,NEW=3") == {"MINE": "1", "OTHER": "2", "NEW": "3"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 5400), ("1:30", 90), ("2:00:00", 7200), ("1-0", 86400), ("1-2:30", 95400), ("0-0:0:5", 5)],
)
def test_a_time_limit_is_read_as_slurm_reads_it(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-", "1-", "a", "1:2:3:4", "-5", "1-1-1", "99999999999"])
def test_a_bad_time_limit_is_refused(text):
    with pytest.raises(RequestRefused, match="is not a time limit here"):
        seconds(text)


def test_sizes_of_memory():
    assert [megabytes(text, "--mem") for text in ("512", "2G", "1T", "2048K")] == [512, 2048, 1048576, 2]


def test_numbers_of_arrays():
    assert array_tasks("3,1-2") == [1, 2, 3]
    assert array_tasks("0-30:10%2") == [0, 10, 20, 30]
    assert [array_step(text) for text in ("0-30:10%2", "1-9", "2,5,7-8", "0-8:2,9")] == [10, 1, 1, 1]
    for bad in ("5-3", ",", "1-2:0", "-1"):
        with pytest.raises(RequestRefused):
            array_tasks(bad)


def test_a_file_name_that_the_server_cannot_fill_in_is_the_shells():
    plain = OutputName("a%%-%j-%A-%a.out", "--output", "ada", [1, 2, 3])
    assert (plain.file, plain.shell) == ("a%-%jobid%-%arrayid%-%arrayindex%.out", "")
    shells = OutputName('$x"`%A_%a', "--output", "ada", [0, 1])
    assert (shells.file, shells.shell) == ("/dev/null", '\\$x\\"\\`${OAR_ARRAY_ID}_${SLURM_ARRAY_TASK_ID-4294967294}')
    padded = OutputName("%4a.out", "--output", "ada", [1, 2])
    assert padded.shell == '$(printf %04d "${SLURM_ARRAY_TASK_ID-4294967294}").out'
    with pytest.raises(RequestRefused):
        OutputName("%4x", "--output", "ada", [])


def test_tasks_are_placed_evenly_and_never_beyond_the_cores():
    assert place_tasks({"a": 2, "b": 2}, 4, 1, 0, 0) == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert place_tasks({"a": 3, "b": 1}, 4, 1, 0, 0) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert place_tasks({"a": 4, "b": 4}, 2, 2, 1, 0) == [("a", 0), ("a", 1)]
    for asked in ((5, 1, 0, 0), (1, 3, 0, 0), (1, 1, 3, 0), (3, 1, 0, 1)):
        with pytest.raises(TasksDoNotFit):
            place_tasks({"a": 2, "b": 2}, *asked)


def test_the_commands_are_declared_once():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["oarlock-slurm"] == {
        name: f"oarlock.cli.slurm.{name}:main" for name in slurm.COMMANDS
    }
    assert not set(slurm.COMMANDS) & set(project["scripts"])


def _oarlock(*words, path):
    code = "import sys; from oarlock.cli.oarlock import main; sys.exit(main())"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], capture_output=True, text=True, check=False,
        env={"PATH": str(path), "PYTHONPATH": str(ROOT / "src")},
    )  # fmt: skip


def test_the_commands_are_installed_where_slurms_are_not(tmp_path):
    mine, theirs = tmp_path / "mine", tmp_path / "theirs"
    mine.mkdir()
    theirs.mkdir()
    assert "would write" in _oarlock("slurm", "install", mine, "--dry-run", path=mine).stdout
    assert list(mine.iterdir()) == []
    for _ in range(2):  # a second time does no harm
        assert _oarlock("slurm", "install", mine, path=mine).returncode == 0
    assert sorted(path.name for path in mine.iterdir()) == sorted(slurm.COMMANDS)
    shown = subprocess.run(
        [mine / "sbatch", "--help"], capture_output=True, text=True, env={"PYTHONPATH": str(ROOT / "src")}, check=True
    )
    assert shown.stdout.startswith("Usage: sbatch ")
    (theirs / "squeue").write_text("#!/bin/sh\n")
    (theirs / "squeue").chmod(0o755)
    refused = _oarlock("slurm", "install", tmp_path, path=theirs)
    assert (refused.returncode, f"There is a squeue already: {theirs}/squeue." in refused.stderr) == (2, True)
    assert not (tmp_path / "sbatch").exists()
    _oarlock("slurm", "remove", theirs, path=mine)
    assert [path.name for path in theirs.iterdir()] == ["squeue"]
    _oarlock("slurm", "remove", mine, path=mine)
    assert list(mine.iterdir()) == []


def test_what_is_no_column_is_refused(run, server):
    server.says(ok({"jobs": []}))
    assert "squeue: %y is not a column here." in run("slurm.squeue", "-o", "%y").err
    assert "sacct: `Nonsense` is not a field here." in run("slurm.sacct", "-o", "Nonsense").err
    assert "`scontrol reboot n1` cannot be translated." in run("slurm.scontrol", "reboot", "n1").err
    assert "srun works inside of a job of sbatch only." in run("slurm.srun", "true").err
    assert "`x1` is not a job number." in run("slurm.scancel", "x1").err
    assert "No job is named." in run("slurm.scancel").err


def test_the_script_travels_as_it_is(run, server, tmp_path):
    text = "#!/bin/sh\necho 'quotes' \"and\" $dollars \\\\ ü\n"
    (tmp_path / "job.sh").write_text(text)
    server.says(ACCEPTED)
    run("slurm.sbatch", "job.sh", "one two", "$three")
    body = server.requests[-1].json
    assert body["environment"]["OARLOCK_SLURM_SCRIPT"] == text
    assert body["command"] == """sh -c "$OARLOCK_SLURM_BEGIN" job.sh 'one two' '$three'"""
    assert json.dumps(body)
