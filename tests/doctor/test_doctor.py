"""The command on a real instance, with a real sshd, and with things that are broken."""

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from oarlock.cli import oarlock
from oarlock.config import Config
from oarlock.server.doctor.diagnosis import Verdict, worst
from oarlock.server.doctor.doctor import Patient, examine
from oarlock.server.instance import open_instance
from oarlock.server.nodes.install import FixedNodeSettings, node_files
from oarlock.settings.kinds import NodeAccess, NodeTransport
from tests import bed
from tests.bed import needs_root
from tests.certificates import certificate


def seen(diagnoses, host=None):
    return {each.check: each for each in diagnoses if host in (None, each.host)}


@pytest.fixture(scope="module")
def instance(tmp_path_factory):
    state = tmp_path_factory.mktemp("state")
    with open_instance(state, Config()):
        pass
    return state


def test_a_backup_is_known_until_it_is_old(instance, tmp_path, capsys):
    config = Config()
    assert seen(examine(Patient(instance, config)))["backup"].verdict is Verdict.WARNING
    assert oarlock.main(["backup", "--state", str(instance), str(tmp_path / "copy")]) == 0
    assert seen(examine(Patient(instance, config)))["backup"].verdict is Verdict.FINE
    later = examine(Patient(instance, config), clock=lambda: time.time() + 8 * 86400)
    assert seen(later)["backup"].verdict is Verdict.WARNING
    capsys.readouterr()


def test_a_certificate_is_looked_at_before_it_ends(instance, tmp_path):
    pem, key = certificate(tmp_path)  # good for two days
    config = Config(tls_certificate=pem, tls_key=key)
    assert seen(examine(Patient(instance, config)))["certificate"].verdict is Verdict.WARNING
    later = examine(Patient(instance, config), clock=lambda: time.time() + 3 * 86400)
    assert seen(later)["certificate"].verdict is Verdict.BROKEN
    (tmp_path / "none.pem").write_text("<script>")
    config = Config(tls_certificate=tmp_path / "none.pem")
    assert seen(examine(Patient(instance, config)))["certificate"].verdict is Verdict.BROKEN


def test_a_full_disk_and_a_silent_mail_server_are_named(instance):
    def full(path):
        about = list(os.statvfs(path))
        about[4] = about[3] = 0
        return os.statvfs_result(about)

    checks = seen(examine(Patient(instance, Config(mail_smtp_server="127.0.0.1:1")), room=full))
    assert (checks["disk"].verdict, checks["mail"].verdict) == (Verdict.BROKEN, Verdict.WARNING)
    assert "127.0.0.1:1 does not answer" in checks["mail"].sentence


def test_a_directory_without_a_database_is_broken(tmp_path):
    assert seen(examine(Patient(tmp_path, Config())))["database"].verdict is Verdict.BROKEN


def test_a_damaged_database_is_broken_and_not_touched(tmp_path):
    (tmp_path / "oarlock.db").write_bytes(b"nonsense" * 1000)
    assert seen(examine(Patient(tmp_path, Config())))["database"].verdict is Verdict.BROKEN
    assert (tmp_path / "oarlock.db").read_bytes() == b"nonsense" * 1000


@pytest.mark.parametrize("name", ["-oProxyCommand=x", "n1;reboot", "", "<script>", "n" * 300])
def test_what_is_not_a_nodes_name_is_refused(name, instance, capsys):
    assert oarlock.main(["doctor", "--state", str(instance), "--", name]) == 2
    assert "oarlock: " in capsys.readouterr().err


def test_an_unknown_user_is_refused(instance, capsys):
    assert oarlock.main(["doctor", "--state", str(instance), "--user", "nobody-at-all", "localhost"]) == 2
    assert "There is no user `nobody-at-all`" in capsys.readouterr().err


def test_without_a_server_no_node_is_checked_and_that_is_said(instance, capsys):
    code = oarlock.main(["doctor", "--state", str(instance), "--json"])
    printed = capsys.readouterr()
    answer = json.loads(printed.out)
    assert (code, answer["exit"]) == (1, 1)
    assert "does not answer, so no node is checked" in printed.err
    assert {check["check"] for check in answer["checks"]} == {"disk", "database", "backup", "mail"}


def etc_without(user: str, place: Path) -> Path:
    """Copy /etc, without an account.

    The whole folder, since who adds an account puts another file in the place of /etc/passwd, and the kernel then drops
    what is mounted over that file in all mount namespaces (since Linux 3.18).
    """
    others = shutil.ignore_patterns("passwd*", "*-", "*+", "*.lock", ".pwd.lock", "[a-z]*.[0-9]*[0-9]")
    shutil.copytree("/etc", place, symlinks=True, ignore=others)
    lines = Path("/etc/passwd").read_text().splitlines()
    (place / "passwd").write_text("".join(f"{line}\n" for line in lines if not line.startswith(f"{user}:")))
    return place


@needs_root
@pytest.mark.component("sshd")
@pytest.mark.component("ip")
def test_nodes_behind_sshd_are_checked_by_the_way_that_jobs_take(workspace, two_users, instance):
    """Pushed and installed, a clock that is wrong, a key that is not trusted, a user whom the node does not know."""
    with bed.rack(workspace) as rack:
        etc = etc_without(two_users[1], workspace / "etc")
        program = workspace / "node"
        key = (workspace / "key.pub").read_text()
        program.write_text(node_files(FixedNodeSettings(Path("/s"), Path("/r"), 1000), key=key).program)
        program.chmod(0o755)
        good = rack.machine(over={"/etc": etc})
        set_up = rack.machine(sshd=f"ForceCommand /usr/bin/python3 -IS {program}")
        foreign = rack.machine()
        foreign.cut_power()
        foreign.new_host_key()
        foreign.boot()
        config = Config(node_transport=NodeTransport.SSH, openssh_cmd=rack.ssh(), oar_ssh_connection_timeout=5)
        patient = Patient(instance, config, [good.address, foreign.address], two_users)
        diagnoses = examine(patient)
        checks = seen(diagnoses, good.address)
        assert checks["ssh"].verdict is checks["clock"].verdict is checks["python"].verdict is Verdict.FINE
        assert checks["users"].verdict is Verdict.BROKEN
        assert f"unknown there: {two_users[1]}" in checks["users"].sentence
        assert "Host key verification failed" in seen(diagnoses, foreign.address)["ssh"].sentence
        assert worst(diagnoses) is Verdict.BROKEN
        wrong = examine(Patient(instance, config, [good.address]), clock=lambda: time.time() + 60)
        assert seen(wrong, good.address)["clock"].sentence.endswith(" s behind")
        assert seen(wrong, good.address)["clock"].verdict is Verdict.BROKEN
        config = Config(
            node_transport=NodeTransport.SSH,
            node_access=NodeAccess.INSTALLED,
            openssh_cmd=(*rack.ssh(), "-l", "root"),
            oar_ssh_connection_timeout=5,
        )
        checks = seen(examine(Patient(instance, config, [set_up.address], two_users)), set_up.address)
        assert checks["ssh"].verdict is checks["users"].verdict is Verdict.FINE
