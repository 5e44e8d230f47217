"""oarlock setup in a tree of its own: what it writes, that it goes on where it was stopped, that it takes all back."""

import errno
import os
import re
import shutil
import subprocess

import pytest

from oarlock import client_connection
from oarlock.cli.oarlock import main
from oarlock.config import load

OURS = [
    "etc/oarlock/id_ed25519",
    "etc/oarlock/id_ed25519.pub",
    "etc/oarlock/oar.conf",
    "etc/systemd/system/oarlock.service",
    "var/lib/oarlock-setup/server.json",
]


@pytest.fixture
def root(tmp_path):
    """A bare machine: it has accounts, settings of others, and no Oarlock."""
    for folder in ("etc/systemd/system", "etc/sudoers.d", "var/lib", "usr/local/lib"):
        (tmp_path / "root" / folder).mkdir(parents=True)
    (tmp_path / "root/etc/passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
    (tmp_path / "root/etc/group").write_text("root:x:0:\n")
    (tmp_path / "root/etc/other.conf").write_text("of somebody else\n")
    return tmp_path / "root"


def tree(root):
    """Return everything below a folder with its content and mode."""
    return {
        str(path.relative_to(root)): (path.stat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in root.rglob("*")
    }


def setup(root, role, *words):
    return main(["setup", role, "--root", str(root), *words])


def test_a_server_gets_settings_key_and_unit(root, capsys):
    bare = tree(root)
    assert setup(root, "server") == 0
    assert sorted(name for name, (_, content) in tree(root).items() if content is not None and name not in bare) == OURS
    config = load(root / "etc/oarlock/oar.conf").config
    assert config.openssh_cmd[:3] == ("ssh", "-i", "/etc/oarlock/id_ed25519")
    modes = {name: oct(tree(root)[name][0] & 0o777) for name in OURS[:4]}
    assert list(modes.values()) == ["0o600", "0o644", "0o600", "0o644"]
    unit = (root / "etc/systemd/system/oarlock.service").read_text()
    assert re.search(r"^ExecStart=/\S+/oarlock serve --state /var/lib/oarlock", unit, re.MULTILINE)
    for line in ("Type=notify", "WatchdogSec=120", "Restart=on-failure", "KillMode=process"):
        assert f"\n{line}\n" in unit
    assert "nft add rule" in capsys.readouterr().out


def test_the_unit_of_a_standby_waits_and_is_always_started_again(root):
    assert setup(root, "server") == 0
    assert setup(root, "server", "--standby") == 0
    assert setup(root, "server") == 0, "a second run leaves it so"
    unit = (root / "etc/systemd/system/oarlock.service").read_text()
    assert re.search(r"^ExecStart=/\S+/oarlock serve --standby --state /var/lib/oarlock --config ", unit, re.MULTILINE)
    assert "\nRestart=always\n" in unit


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_can_read_the_unit(root):
    setup(root, "server")
    unit = root / "etc/systemd/system/oarlock.service"
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
    assert [
        line for line in ran.stderr.splitlines() if "oarlock.service" in line and "not executable" not in line
    ] == []


def test_a_second_run_changes_nothing_and_undo_leaves_the_bare_machine(root, capsys):
    bare = tree(root)
    setup(root, "server")
    once = tree(root)
    capsys.readouterr()
    assert setup(root, "server") == 0
    assert tree(root) == once
    assert capsys.readouterr().out.startswith("Next:")
    assert setup(root, "server", "--undo") == 0
    assert tree(root) == bare
    assert setup(root, "server", "--undo") == 0


def test_a_dry_run_shows_every_file_and_writes_none(root, capsys):
    bare = tree(root)
    assert setup(root, "server", "--dry-run") == 0
    assert tree(root) == bare
    text = capsys.readouterr().out
    assert "+++ /etc/oarlock/oar.conf" in text
    assert "+Type=notify" in text
    assert "PRIVATE KEY" not in text
    setup(root, "server")
    capsys.readouterr()
    setup(root, "server", "--dry-run")
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), OSError(errno.ENOSPC, "No space left on device")])
def test_stopped_at_any_write_it_goes_on_when_run_again(root, monkeypatch, capsys, problem):
    bare, rename = tree(root), os.replace
    for stop in range(8):
        left = [stop]

        def stopping(source, target, left=left):
            if not left[0]:
                raise problem
            left[0] -= 1
            rename(source, target)

        monkeypatch.setattr(os, "replace", stopping)
        if isinstance(problem, KeyboardInterrupt):
            with pytest.raises(KeyboardInterrupt):
                setup(root, "server")
        else:
            assert setup(root, "server") == 2
            assert "Run the same command again" in capsys.readouterr().err
        monkeypatch.setattr(os, "replace", rename)
        if stop % 2:  # half of them are finished first
            assert setup(root, "server") == 0
            assert [name for name in OURS if name not in tree(root)] == []
        assert setup(root, "server", "--undo") == 0
        assert tree(root) == bare


def test_what_somebody_else_wrote_is_kept_and_named(root, capsys):
    (root / "etc/oarlock").mkdir()
    (root / "etc/oarlock/oar.conf").write_text('DB_TYPE="Pg"\n')
    (root / "etc/systemd/system/oarlock.service").write_text("[Service]\n")
    bare = tree(root)
    assert setup(root, "server") == 2
    said = capsys.readouterr()
    assert "kept /etc/oarlock/oar.conf" in said.out
    assert said.err.startswith("oarlock: /etc/systemd/system/oarlock.service: this was kept")
    assert (root / "etc/oarlock/id_ed25519").exists()
    assert setup(root, "server", "--undo") == 0
    assert tree(root) == bare


def test_settings_that_were_changed_since_outlive_an_undo(root, capsys):
    setup(root, "server")
    (root / "etc/oarlock/oar.conf").write_text('DB_TYPE="Pg"\n')
    assert setup(root, "server") == 0
    assert setup(root, "server", "--undo") == 2
    assert "/etc/oarlock/oar.conf was changed since" in capsys.readouterr().err
    assert (root / "etc/oarlock/oar.conf").read_text() == 'DB_TYPE="Pg"\n'


def test_only_root_may_write_to_the_machine_itself(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert main(["setup", "login", "--server", "https://cluster:6680"]) == 2
    assert capsys.readouterr().err == (
        "oarlock: Setup writes below /etc, which only root may.\n  Use sudo, or look with --dry-run.\n"
    )


@pytest.mark.skipif(os.geteuid() != 0, reason="useradd is for root")
def test_a_server_of_an_account_gets_its_files_and_a_program_of_roots(root):
    bare = tree(root)
    assert setup(root, "server", "--account", "oarlock") == 0
    once = tree(root)
    uid = int(re.search(r"^oarlock:[^:]*:(\d+):", (root / "etc/passwd").read_text(), re.MULTILINE)[1])
    owners = {name: (root / name).stat().st_uid for name in ("etc/oarlock/oar.conf", "etc/oarlock/id_ed25519")}
    assert list(owners.values()) == [0, uid]
    assert ((root / "var/lib/oarlock").stat().st_uid, (root / "usr/local/lib/oarlock/node").stat().st_uid) == (uid, 0)
    assert "\nUser=oarlock\n" in (root / "etc/systemd/system/oarlock.service").read_text()
    sudoers = (root / "etc/sudoers.d/oarlock").read_text()
    assert sudoers == 'oarlock ALL=(root) NOPASSWD: /usr/local/lib/oarlock/node ""\n'
    assert load(root / "etc/oarlock/oar.conf").config.serve_everybody
    assert setup(root, "server") == 0, "a second run leaves it so"
    assert tree(root) == once
    assert setup(root, "server", "--undo") == 0
    left = {name for name in tree(root) if name not in bare}
    assert {name for name in left if "oarlock" in name} == set()


def test_a_login_host_knows_the_server_without_a_variable(root, tmp_path, monkeypatch):
    bare = tree(root)
    (tmp_path / "ca.pem").write_text("a certificate\n")
    words = ("--server", "https://one:6680,https://two:6680", "--ca", str(tmp_path / "ca.pem"))
    assert setup(root, "login", *words) == 0
    monkeypatch.setattr(client_connection, "SERVER_FILE", str(root / "etc/oarlock/server"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert client_connection.default_server() == "https://one:6680,https://two:6680"
    assert setup(root, "login", "--undo") == 0
    assert tree(root) == bare
    assert client_connection.default_server() == client_connection.SYSTEM_SOCKET


def test_a_login_host_with_a_relay_keeps_its_key_from_others(root, tmp_path, monkeypatch, capsys):
    bare = tree(root)
    (tmp_path / "key").write_text("a secret\n")
    words = ("--relay", "--server", "https://one:6680,https://two:6680", "--key", str(tmp_path / "key"))
    assert setup(root, "login", *words, "--dry-run") == 0
    assert "a secret" not in capsys.readouterr().out
    assert setup(root, "login", *words) == 0
    assert (root / "etc/oarlock/relay.key").stat().st_mode & 0o777 == 0o600
    unit = (root / "etc/systemd/system/oarlock-relay.service").read_text()
    assert re.search(r"^ExecStart=/\S+/oarlock relay https://one:6680,https://two:6680 --key \S+", unit, re.MULTILINE)
    assert "\nLoadCredential=relay.key:/etc/oarlock/relay.key\n" in unit
    monkeypatch.setattr(client_connection, "SERVER_FILE", str(root / "etc/oarlock/server"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert client_connection.default_server() == "/run/oarlock-relay/server.sock"
    assert setup(root, "login", "--undo") == 0
    assert tree(root) == bare


def test_a_relay_without_its_key_is_refused(root, capsys):
    assert setup(root, "login", "--relay", "--server", "https://one") == 2
    assert "oarlock token add --relay HOST" in capsys.readouterr().err


@pytest.mark.parametrize(
    "address", ["", "cluster", "https://x y", "https://a\nb", "ftp://x", '"https://x"', "h" * 9999]
)
def test_what_is_not_an_address_is_refused(root, capsys, address):
    assert setup(root, "login", "--server", address) == 2
    assert "is not the address of a server" in capsys.readouterr().err
    assert not (root / "etc/oarlock").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="useradd is for root")
def test_a_node_gets_account_program_key_and_sudoers_line(root, tmp_path, capsys):
    bare = tree(root)
    for name in ("node", "authorized_keys", "sudoers"):
        (tmp_path / name).write_text(f"the file {name}\n")
    assert setup(root, "node", "--from", str(tmp_path)) == 0
    assert "\noarlock:" in (root / "etc/passwd").read_text()
    assert (root / "usr/local/lib/oarlock/node").stat().st_mode & 0o777 == 0o755
    assert (root / "etc/sudoers.d/oarlock").stat().st_mode & 0o777 == 0o440
    assert (root / "var/lib/oarlock-account/.ssh/authorized_keys").read_text() == "the file authorized_keys\n"
    assert setup(root, "node", "--undo") == 0
    left = {
        name: value
        for name, value in tree(root).items()
        if not re.match(r"etc/(passwd|group|shadow|gshadow|sub)", name)
    }
    assert left == {name: value for name, value in bare.items() if not re.match(r"etc/(passwd|group)", name)}
    assert "oarlock" not in (root / "etc/passwd").read_text()


def test_a_node_that_is_pushed_to_needs_nothing(root, capsys):
    bare = tree(root)
    assert setup(root, "node") == 0
    assert tree(root) == bare
    assert "NODE_ACCESS=push" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "a b", "", "a;b", "$(x)"])
def test_a_name_that_is_not_a_nodes_is_refused(root, capsys, name):
    assert setup(root, "server", "--", name) == 2
    assert f"`{name}` is not the name of a node." in capsys.readouterr().err
