"""X11 forwarding: the display of the user for the shell of an interactive job, and for nobody else."""

import os
import pwd
import secrets
import shutil
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from oarlock.cli.sessions.x11 import replace_cookie
from oarlock.model.job import JobState
from oarlock.node.oarx11 import PROTOCOL, authority
from tests.bed import needs_root
from tests.e2e.instance import SOURCE
from tests.e2e.terminal import terminal
from tests.e2e.test_oarsh_in_jobs import submitted
from tests.waiting import wait_until

FAKE, OWN = b"f" * 16, b"o" * 16


def head(order, protocol, cookie, rest=b"rest"):
    """Return what a program of X11 sends first."""
    pad = lambda data: data + b"\0" * (-len(data) % 4)  # noqa: E731
    first = b"l\0" if order == "<" else b"B\0"
    return (
        first + struct.pack(f"{order}HHHHH", 11, 0, len(protocol), len(cookie), 0) + pad(protocol) + pad(cookie) + rest
    )


@pytest.mark.parametrize("order", ["<", ">"])
def test_the_cookie_of_the_job_is_replaced_by_that_of_the_display(order):
    shown = head(order, PROTOCOL, FAKE)
    assert replace_cookie(shown, FAKE, OWN) == head(order, PROTOCOL, OWN)
    assert replace_cookie(shown, FAKE, b"") == head(order, b"", b"")  # the display asks for none
    assert {replace_cookie(shown[:length], FAKE, OWN) for length in range(len(shown) - 4)} == {None}
    for wrong in (head(order, PROTOCOL, OWN), head(order, b"", b""), head(order, b"XDM-AUTHORIZATION-1", FAKE),
                  head(order, PROTOCOL, FAKE[:-1]), b"GET / HTTP/1.1\r\n", head(order, b"x" * 5000, FAKE)):  # fmt: skip
        assert replace_cookie(wrong, FAKE, OWN) == b""


@pytest.fixture
def display(users, shop):
    """An X server that lets in whoever has its cookie."""
    number, file = 1000 + secrets.randbelow(9000), shop.home / f"xauth.{secrets.token_hex(4)}"
    file.write_bytes(authority(number, secrets.token_bytes(16)))
    account = pwd.getpwnam(users[0])
    os.chown(file, account.pw_uid, account.pw_gid)
    file.chmod(0o600)
    command = [shutil.which("Xvfb"), f":{number}", "-auth", file, "-nolisten", "tcp", "-screen", "0", "320x240x24"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        wait_until(Path(f"/tmp/.X11-unix/X{number}").exists, what="the X server", seconds=30)
        yield {"DISPLAY": f":{number}", "XAUTHORITY": str(file)}
        server.terminate()


def is_served(address):
    """Return whether somebody listens at the address of a Unix socket."""
    with socket.socket(socket.AF_UNIX) as sock:
        return sock.connect_ex(address) == 0


CONNECTS = """
import socket, sys
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(10)
sock.connect(sys.argv[1].replace("@", chr(0)))
sock.sendall(b"l")
sys.exit(0 if sock.recv(1) else 3)
"""


@needs_root
@pytest.mark.soak
@pytest.mark.component("Xvfb")
@pytest.mark.component("xdpyinfo")
def test_a_program_of_an_interactive_job_uses_the_display(shop, users, display):
    """Nobody else does: its files are the user's, another user is sent away, and so is who has no cookie."""
    output, variables = (shop.home / f"{name}.{secrets.token_hex(4)}" for name in ("x11", "variables"))
    asked = ("-I", "--x11", "-l", "/core=1,walltime=0:10:00")
    with terminal(shop, users[0], *asked, variables=display) as typed:
        typed.until("Connect to OAR job")
        typed.type("until [ -e $XAUTHORITY ]; do sleep 0.1; done\n")
        typed.type(f"xdpyinfo > {output} 2>&1; echo $? $DISPLAY $XAUTHORITY > {variables}.new\n")
        typed.type(f"XAUTHORITY=/dev/null xdpyinfo > {output}.2 2>&1; echo $? >> {variables}.new\n")
        typed.type(f"mv {variables}.new {variables}\n")
        shop.until(variables.exists)
        first, name, path, second = variables.read_text().split()
        assert (first, second) == ("0", "1"), output.read_text() + Path(f"{output}.2").read_text()
        assert "320x240 pixels" in output.read_text()
        number, file = name.removeprefix(":"), Path(path)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        assert (shop.home / display["XAUTHORITY"]).read_bytes()[-16:] != file.read_bytes()[-16:]
        place = f"/tmp/.X11-unix/X{number}"
        assert Path(place).stat().st_mode & 0o077 == 0
        other = pwd.getpwnam(users[1])
        for address in (place, f"@{place}"):
            ran = subprocess.run(["/usr/bin/python3", "-c", CONNECTS, address], user=other.pw_uid, group=other.pw_gid,
                                 extra_groups=[], check=False, capture_output=True)  # fmt: skip
            assert ran.returncode in {1, 3}
        typed.type("exit\n")
        typed.ended()
    for address in (place, f"\0{place}"):
        shop.until(lambda address=address: not is_served(address))
    Path(place).unlink(missing_ok=True)  # whoever is killed with the job leaves it
    shutil.rmtree(file.parent, ignore_errors=True)


@needs_root
@pytest.mark.soak
@pytest.mark.component("Xvfb")
@pytest.mark.component("xdpyinfo")
def test_a_command_of_oarsh_on_another_node_uses_the_display(shop, users, display):
    job = submitted(shop, users[0], "sleep 600")
    shop.until(lambda: shop.job(job).state is JobState.RUNNING)
    account = pwd.getpwnam(users[0])
    code = "import sys; from oarlock.cli.jobs.oarsh import main; sys.exit(main())"
    environment = {
        "PATH": os.environ["PATH"], "HOME": str(shop.home), "PYTHONPATH": str(SOURCE), "OAR_JOB_ID": str(job),
        "OARLOCK_SERVER": str(shop.state / "server.sock"), **display,
    }  # fmt: skip
    ran = {
        flag: subprocess.run(
            [sys.executable, "-c", code, *flag.split(), shop.nodes[1], "xdpyinfo"], env=environment, cwd=shop.home,
            user=account.pw_uid, group=account.pw_gid, extra_groups=[], capture_output=True, text=True, timeout=60,
            check=False, stdin=subprocess.DEVNULL,
        )
        for flag in ("-X", "")
    }  # fmt: skip
    shop.delete(job)
    assert (ran["-X"].returncode, "320x240 pixels" in ran["-X"].stdout) == (0, True), ran["-X"].stderr
    assert ran[""].returncode == 1
