"""oar_resources_add, oar_resources_init and oarlock discover: what they print, and what they refuse."""

import stat
from pathlib import Path

import pytest

from tests.canned import ok, refusal
from tests.cli.conftest import Ran

PROPERTIES = ok(
    {"properties": {"cpu": "int", "cpuset": "str", "host": "str", "core": "int", "mem": "int"}, "system": []}
)


def resources(*rows):
    return ok({"resources": list(rows), "jobs": {}})


def test_equal_hosts_become_commands(run):
    assert run("oar_resources_add", "-H", "2", "-C", "1", "-c", "2", "-A", "-p cluster=a") == Ran(
        0,
        "oarproperty -a host -c\noarproperty -a core\n"
        "oarnodesetting -a -h 'node-1' -p host='node-1' -p cpu=1 -p core=1 -p cpuset=0 -p cluster=a\n"
        "oarnodesetting -a -h 'node-1' -p host='node-1' -p cpu=1 -p core=2 -p cpuset=1 -p cluster=a\n"
        "oarnodesetting -a -h 'node-2' -p host='node-2' -p cpu=2 -p core=3 -p cpuset=0 -p cluster=a\n"
        "oarnodesetting -a -h 'node-2' -p host='node-2' -p cpu=2 -p core=4 -p cpuset=1 -p cluster=a\n",
        "",
    )


def values(run, name, *words):
    """Return the values that a property has in the commands."""
    ran = run("oar_resources_add", "-p", "-H", "1", *words)
    assert (ran.code, ran.err) == (0, "")
    return [line.split(f"-p {name}=")[1].split()[0] for line in ran.out.splitlines()]


@pytest.mark.parametrize(
    ("words", "name", "expected"),
    [
        (["-C", "2", "-c", "2", "--cputopo", "RR"], "cpuset", ["0", "2", "1", "3"]),
        (["-C", "2", "-c", "2", "--cputopo", "3,2,1,0"], "cpuset", ["3", "2", "1", "0"]),
        (["-C", "2", "-c", "2", "--cpusets", "2"], "cpuset", ["0", "1", "0", "1"]),
        (["-C", "1", "-c", "2", "-t", "2", "-T"], "core", ["1", "1", "2", "2"]),
        (["-C", "1", "-c", "2", "-t", "2", "-T", "--thread0", "9"], "thread", ["9", "10", "11", "12"]),
        (["-C", "2", "-c", "2", "-g", "4"], "gpu", ["1", "2", "3", "4"]),
        (["-C", "2", "-c", "2", "-g", "1"], "gpu", ["1", "1", "1", "1"]),
        (["-C", "2", "-c", "2", "-g", "2", "--gputopo", "1 0"], "gpudevice", ["1", "1", "0", "0"]),
        (["-C", "1", "-c", "1", "--host0", "7", "--host-prefix", "n", "--host-suffix", ".lab"], "host", ["'n7.lab'"]),
        (["-C", "1", "-c", "1", "--cpu0", "5"], "cpu", ["5"]),
    ],
)
def test_options_of_oar_resources_add_count_as_in_oar(run, words, name, expected):
    assert values(run, name, *words) == expected


def test_numbers_follow_those_that_are_there(run, server):
    server.says(resources({"host": "node-9", "cpu": 4, "core": 17}, {"host": "node-10", "cpu": 3, "core": 8}))
    ran = run("oar_resources_add", "-a", "-p", "-H", "1", "-C", "1", "-c", "1")
    assert ran == Ran(0, "oarnodesetting -a -h 'node-11' -p host='node-11' -p cpu=5 -p core=18 -p cpuset=0\n", "")


def test_resources_are_repaired_and_written_as_yaml(run, tmp_path):
    words = ("-H", "1", "-C", "1", "-c", "1", "-o", "out")
    assert run("oar_resources_add", *words, "-R").out == (
        "oarnodesetting --sql \"host = 'node-1' AND core = 1\" -p cpu=1 -p cpuset=0\n"
    )
    yaml = "---\n- network_address: 'node-1'\n  host: 'node-1'\n  cpu: 1\n  core: 1\n  cpuset: 0\n"
    assert run("oar_resources_add", *words, "-Y").out == yaml == (tmp_path / "out").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "How many hosts?"),
        (["-H", "0"], "--hosts is 0; it is at least 1."),
        (["-H", "-1"], "-H takes a whole number, not `-1`."),
        (["-H", "x"], "-H takes a whole number, not `x`."),
        (["-H", "1", "word"], "`word` is not an option."),
        (["-H", "99999"], "799992 resources are too many at once."),
        (["-H", "1", "--cputopo", "0,1"], "--cputopo `0,1` is not a list of 8 numbers."),
        (["-H", "1", "-C", "1", "-c", "2", "--cputopo", "0,x"], "--cputopo `0,x` is not a list of 2 numbers."),
        (["-H", "1", "-g", "3"], "3 GPUs cannot be divided among 2 CPUs of 4 cores."),
        (["-H", "1", "--host-prefix", "a'; reboot #"], "`a'; reboot #` cannot be a part of a host's name."),
        (["-H", "1", "-o", "link"], "link cannot be written: Too many levels of symbolic links."),
        (["-H", "1", "-o", "no/where"], "no/where cannot be written: No such file or directory."),
    ],
)
def test_what_oar_resources_add_cannot_mean_is_refused(run, tmp_path, words, says):
    (tmp_path / "link").symlink_to(tmp_path / "target")
    ran = run("oar_resources_add", *words)
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (1, "", f"oar_resources_add: {says}")
    assert not (tmp_path / "target").exists()


LOCAL = 'NODE_TRANSPORT="local"\n'


@pytest.fixture
def here(run, server, tmp_path):
    """Run `oar_resources_init` on a file of hosts that are all this machine."""
    (tmp_path / "oar.conf").write_text(LOCAL)
    (tmp_path / "hosts").write_text("# all of them\nn[1-2]\n")

    def ran(*words, **more):
        return run("oar_resources_init", "-c", str(tmp_path / "oar.conf"), *words, **more)

    return ran


def test_a_script_is_written_that_a_shell_can_carry_out(here, server, tmp_path):
    server.says(resources(), PROPERTIES)
    ran = here("-y", "-H", "-o", "script", "-n", "/opt/o n", "hosts")
    assert (ran.code, ran.err) == (0, "")
    lines = (tmp_path / "script").read_text().splitlines()
    assert lines[0].startswith("'/opt/o n' -a -h n1 -p host=n1 -p cpu=1 -p core=1 -p cpuset=")
    assert sum("-h n1" in line for line in lines) == sum("-h n2" in line for line in lines) == len(lines) // 2
    assert "n[1-2]: " in ran.out
    assert ran.out.splitlines()[-1] == "# . script"


def test_a_second_run_writes_nothing_to_add(here, server, tmp_path):
    every = "0-8191"
    there = [{"network_address": name, "type": "default", "cpuset": every} for name in ("n1", "n2")]
    server.says(resources(*there), PROPERTIES)
    ran = here("-y", "-T", "-x", "hosts")
    assert (ran.code, ran.err, ran.out.splitlines()[-1]) == (0, "", "Nothing is to be added.")
    assert [request.method for request in server.requests] == ["GET", "GET"]


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ([], 1, "One file with hosts is needed."),
        (["hosts", "more"], 1, "One file with hosts is needed."),
        (["hosts"], 2, "Can root log in to all hosts with the server's key? Nobody can be asked."),
        (["-y", "nothing"], 1, "The list of hosts nothing cannot be read: No such file or directory."),
        (["-y", "empty"], 1, "No host is named."),
        (["-y", "binary"], 1, "The list of hosts binary cannot be read: byte 1 is not valid UTF-8."),
        (["-y", "options"], 1, "`-oProxyCommand=reboot` cannot be the name of a host."),
        (["-y", "-o", "link", "hosts"], 4, "The script link cannot be written: Too many levels of symbolic links."),
    ],
)
def test_what_oar_resources_init_cannot_do_is_refused(here, server, tmp_path, words, code, says):
    (tmp_path / "empty").touch()
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    (tmp_path / "options").write_text("-oProxyCommand=reboot\n")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    server.says(resources(), PROPERTIES)
    ran = here(*words)
    assert (ran.code, ran.err.splitlines()[0]) == (code, f"oar_resources_init: {says}")
    assert not (tmp_path / "target").exists()


def test_a_host_that_is_not_reached_leaves_no_script_and_oars_number(run, server, tmp_path):
    (tmp_path / "oar.conf").write_text("")
    (tmp_path / "hosts").write_text("n1\n")
    server.says(resources(), PROPERTIES)
    words = ("-y", "-x", "-e", "/bin/false", "-o", "script", "-c", str(tmp_path / "oar.conf"), "hosts")
    ran = run("oar_resources_init", *words)
    assert (ran.code, (tmp_path / "script").exists()) == (5, False)
    assert ran.err.splitlines()[:2] == [
        "n1: ssh ended with 1 and without an answer",
        "oar_resources_init: 1 of 1 hosts was not reached: n1.",
    ]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "No host is named."),
        (["n[1-"], "`n[1-` has a bracket without the other."),
        (["n[1-99999]"], "`n[1-99999]` stands for more than 10000 names."),
        (["n1;reboot"], "`n1;reboot` cannot be the name of a host."),
        (["-f", "nothing"], "The list of hosts nothing cannot be read: No such file or directory."),
        (["--threads", "some", "n1"], "--threads cannot be `some`."),
    ],
)
def test_hosts_that_cannot_be_asked_are_refused(run, words, says):
    ran = run("oarlock", "discover", *words)
    assert (ran.code, ran.out, ran.err.splitlines()[0]) == (2, "", f"oarlock: {says}")


def test_discover_asks_nobody_while_the_server_is_down(run, tmp_path):
    ran = run("oarlock", "discover", "n1", OARLOCK_SERVER=str(tmp_path / "nothing.sock"))
    assert (ran.code, ran.out, len(ran.err.splitlines()) <= 2) == (2, "", True)


def test_only_administrators_add_what_was_found(run, server, tmp_path):
    (tmp_path / "oar.conf").write_text(LOCAL)
    refused = refusal(403, "AdminsOnly", "ada is not an administrator.")
    server.says(resources(), PROPERTIES, refused)
    ran = run("oarlock", "discover", "-x", "--config", str(tmp_path / "oar.conf"), "n1")
    assert (ran.code, ran.out, ran.err) == (2, "", "oarlock: ada is not an administrator.\n")


def test_a_script_is_for_its_owner_where_it_was_not_named(here, server):
    server.says(resources(), PROPERTIES)
    path = Path(here("-y", "hosts").out.splitlines()[-1].removeprefix("# . "))
    try:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        path.unlink()
