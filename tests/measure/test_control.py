import json
import os
import socket
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from oarlock.measure import control
from oarlock.measure.control import ControlRefused, ControlSocket, ask
from oarlock.measure.options import AgentOptions, make_options
from oarlock.model.errors import ConfigRefused


@pytest.fixture
def received():
    return []


@pytest.fixture
def listening(tmp_path, received):
    def change(changes):
        received.append(changes)
        return make_options(changes)

    made_control = ControlSocket(tmp_path / "run" / "agent.sock", change)
    yield made_control.path
    made_control.close()
    assert not made_control.path.exists()


def test_a_change_is_applied_and_the_new_settings_are_returned(listening, received):
    now = ask(listening, {"period": "1.5"})
    assert now["period"] == 1.5
    assert now["names"] == ["oarlock", "slurm"]
    assert received == [{"period": "1.5"}]


def test_a_refusal_comes_back_with_its_way_out(listening):
    with pytest.raises(ControlRefused, match="no option `perod`") as refused:
        ask(listening, {"perod": 1})
    assert refused.value.hint == "Close to it is period."


def test_only_the_owner_may_open_the_socket(listening):
    assert stat.S_IMODE(listening.stat().st_mode) == 0o600


@pytest.mark.parametrize("sent", [b"[]\n", b"{\n", b"\xff\n", b'{"period": {}}\n'])
def test_nonsense_is_refused_and_the_next_change_is_applied(listening, sent):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(listening))
        connection.sendall(sent)
        assert "refused" in json.loads(connection.recv(10_000))
    assert ask(listening, {})["period"] == AgentOptions().period


def test_a_message_without_end_is_cut_off(listening):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(listening))
        try:
            connection.sendall(b"x" * (control.LONGEST_MESSAGE * 4))
            answer = connection.recv(100)
        except (BrokenPipeError, ConnectionResetError):
            answer = b""
        assert answer == b""


OTHER_USER = """
import os, socket, sys
os.setuid(65534)
s = socket.socket(socket.AF_UNIX)
s.connect(sys.argv[1])
s.sendall(b'{"period": "0.1"}\\n')
print(s.recv(1000).decode())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused_by_uid_even_if_the_socket_is_writable():
    """The socket is opened to all for this, so that only the kernel's word on the other end is left."""
    with tempfile.TemporaryDirectory(prefix="oarlock-control-") as folder:
        Path(folder).chmod(0o755)
        open_to_all = ControlSocket(Path(folder) / "agent.sock", lambda changes: make_options(changes))
        try:
            open_to_all.path.chmod(0o666)
            command = [sys.executable, "-c", OTHER_USER, str(open_to_all.path)]
            ran = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd="/")
            assert "Only root and the agent's own user" in ran.stdout, ran.stderr
        finally:
            open_to_all.close()


def test_two_agents_do_not_share_a_socket_but_a_dead_one_leaves_its_own(listening, tmp_path):
    with pytest.raises(ConfigRefused, match="Another agent has the socket"):
        ControlSocket(listening, lambda changes: make_options(changes))
    dead = tmp_path / "dead.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(dead))
    ControlSocket(dead, lambda changes: make_options(changes)).close()


def test_where_nobody_listens_that_is_told(tmp_path):
    with pytest.raises(ControlRefused, match="No agent answers"):
        ask(tmp_path / "agent.sock", {})
    (tmp_path / "file").touch()
    with pytest.raises(ConfigRefused, match="cannot be made"):
        ControlSocket(tmp_path / "file" / "agent.sock", lambda changes: make_options(changes))


def test_each_user_has_a_socket_of_his_own(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert str(control.default_path()) == "/run/oarlock/agent.sock"
    monkeypatch.setattr(os, "geteuid", lambda: 1001)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1001")
    assert str(control.default_path()) == "/run/user/1001/oarlock-agent.sock"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert str(control.default_path()) == "/tmp/oarlock-agent-1001.sock"
