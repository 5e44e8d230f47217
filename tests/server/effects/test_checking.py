"""Checking nodes with programs of the site: what they are given, and how what they print is read."""

import pytest

from oarlock.config import Config
from oarlock.server.effects.node_commands import configured_checker
from tests.bed import needs_root, rack, run_async, script

_NMAP = """\
Starting Nmap 7.93 ( https://nmap.org )
Nmap scan report for n1 (10.0.0.1)
Host is up (0.00010s latency).

PORT   STATE SERVICE
22/tcp open  ssh

Nmap scan report for n2 (10.0.0.2)
Host is up (0.00010s latency).

PORT   STATE  SERVICE
22/tcp closed ssh

Nmap scan report for n4
22/tcp open  ssh
Nmap done: 4 IP addresses (3 hosts up) scanned in 0.05 seconds
"""
_NAMES = ["n1", "n2", "n3", "n4"]


def _config(site, kind, body):
    program = script(site / "check", f'echo "$@" > {site}/given\n{body}')
    return Config(**{f"pingchecker_{kind}_command": (program, "-x")})


@pytest.mark.manual(162)
def test_without_a_program_nodes_are_checked_through_their_connections():
    assert configured_checker(Config()) is None


@pytest.mark.manual(162)
@pytest.mark.parametrize(
    ("kind", "body", "given", "bad"),
    [
        ("fping", "echo n1; echo n4; echo n3: Name unknown >&2; exit 1", "-x -a n1 n2 n3 n4", ["n2", "n3"]),
        ("nmap", f"cat << 'EOF'\n{_NMAP}EOF", "-x n1 n2 n3 n4", ["n2", "n3"]),
        ("generic", "echo n1; echo n3 >&2; echo n2 >&2; echo n2x >&2; exit 2", "-x n1 n2 n3 n4", ["n2", "n3"]),
        ("generic", "exit 0", "-x n1 n2 n3 n4", []),
    ],
)
@run_async
async def test_a_program_is_given_the_names_and_says_who_is_bad(site, kind, body, given, bad):
    silent = await configured_checker(_config(site, kind, body)).silent(_NAMES)
    assert list(silent) == bad
    assert (site / "given").read_text() == f"{given}\n"


@run_async
async def test_a_program_that_cannot_be_run_says_nothing_about_nodes(site):
    config = Config(pingchecker_generic_command=(str(site / "none"),))
    assert await configured_checker(config).silent(_NAMES) is None


@run_async
async def test_a_name_that_could_be_an_option_is_not_given_to_a_program(site):
    silent = await configured_checker(_config(site, "generic", "exit 0")).silent(["n1", "--rm"])
    assert list(silent) == ["--rm"]
    assert (site / "given").read_text() == "-x n1\n"


_SENTINELLE = """\
n1 : GOOD 0
n2 : BAD 255 (connection refused)
n3 : BAD (timeout)
"""


@pytest.mark.manual(162)
@run_async
async def test_sentinelle_reads_the_names_and_prints_who_is_bad(site):
    program = script(
        site / "sentinelle.pl", f'echo "$@" > {site}/given; cat > {site}/names; cat <<EOF\n{_SENTINELLE}EOF'
    )
    config = Config(
        pingchecker_sentinelle_script_command=(program, "-t", "5"), openssh_cmd=("ssh", "-i", "/root/my key")
    )
    assert list(await configured_checker(config).silent(_NAMES)) == ["n2", "n3"]
    ssh = "ssh -i '/root/my key' -o ConnectTimeout=10 -o BatchMode=yes"
    assert (site / "given").read_text() == f"-t 5 -c {ssh} -f -\n"
    assert (site / "names").read_text().split() == _NAMES


def test_programs_of_oar_that_are_not_installed_are_passed_over(site, caplog):
    config = Config(
        pingchecker_taktuk_arg_command=("broadcast", "exec", "[", "true", "]"),
        taktuk_cmd=(str(site / "taktuk"), "-s"),
        pingchecker_sentinelle_script_command=(str(site / "sentinelle.pl"),),
        pingchecker_fping_command=("/usr/bin/fping",),
    )
    assert configured_checker(config).command == ("/usr/bin/fping", "-a")
    assert [record.why.split()[0] for record in caplog.records] == [str(site / "taktuk"), str(site / "sentinelle.pl")]


@pytest.mark.manual(162)
@needs_root
@pytest.mark.manual(162, 174)
@pytest.mark.component("sshd")
@pytest.mark.component("ip")
@pytest.mark.component("taktuk")
@run_async
async def test_taktuk_asks_nodes_by_ssh_and_tells_who_is_bad(workspace):
    with rack(workspace) as made:
        good, ill, away = made.machine(), made.machine(), made.machine()
        (ill.home / "disk" / "ill").touch()
        away.link("down")
        config = Config(
            taktuk_cmd=("/usr/bin/taktuk", "-s"),
            pingchecker_taktuk_arg_command=("-t", "3", "broadcast", "exec", "[", f"test ! -e {made.disk}/ill", "]"),
            openssh_cmd=made.ssh(),
            oar_ssh_connection_timeout=1,
        )
        silent = await configured_checker(config).silent([good.address, ill.address, away.address])
    assert list(silent) == [ill.address, away.address]
