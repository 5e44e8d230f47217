"""oarlock node install: what it writes, and what it refuses."""

import re

import pytest

from oarlock.cli.oarlock import main

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB root@server\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "oar.conf").write_text('JOB_MIN_UID=500\nPROLOGUE_EXEC_FILE="/site/prologue"\n')
    monkeypatch.setenv("OARLOCK_CONF", "oar.conf")
    (tmp_path / "key.pub").write_text(KEY)
    return tmp_path


def test_it_writes_three_files_and_says_where_each_goes(here, capsys):
    assert main(["node", "install", "--key", "key.pub"]) == 0
    assert sorted(path.name for path in (here / "oarlock-node").iterdir()) == ["authorized_keys", "node", "sudoers"]
    said = capsys.readouterr().out
    assert re.findall(r"oarlock-node/(\w+) (\S+)", said) == [
        ("node", "/usr/local/lib/oarlock/node"),
        ("authorized_keys", "~oarlock/.ssh/authorized_keys"),
        ("sudoers", "/etc/sudoers.d/oarlock"),
    ]
    program = (here / "oarlock-node" / "node").read_text()
    assert "'lowest_uid': 500, 'programs': ['/site/prologue']" in program


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--key", "none.pub"], "The key none.pub cannot be read: No such file or directory."),
        (["--key", "oar.conf"], "That is not one public key of ssh."),
        (["--key", "key.pub", "--to", "key.pub"], "The folder key.pub cannot be written: File exists."),
        (["--key", "key.pub", "--program", "node"], "The program cannot lie at `node`."),
    ],
)
def test_what_cannot_be_done_is_refused_in_a_sentence(here, capsys, arguments, says):
    assert main(["node", "install", *arguments]) == 2
    assert capsys.readouterr().err.startswith(f"oarlock: {says}\n  ")
