"""What becomes of a cluster of three machines: an upgrade, a standby, a login host, the end."""

import re
import time

import pytest

from oarlock import __version__
from tests.bed import needs_root
from tests.certificates import certificate
from tests.page import section, typed_lines
from tests.releases import RELEASES
from tests.vm import cluster as clusters
from tests.vm import packages
from tests.vm.cluster import FILES, PAGE
from tests.vm.test_cluster import BOTH, WAITS, let_end
from tests.waiting import wait_until

pytestmark = [
    needs_root,
    pytest.mark.soak,
    pytest.mark.timeout(3000),
    pytest.mark.component("qemu"),
    pytest.mark.component("qemu-img"),
    pytest.mark.component("debootstrap"),
    pytest.mark.component("busybox"),
    pytest.mark.component("mke2fs"),
]


def typed_in_text(page, title, word):
    """Return the commands in the text of a section that begin with a word."""
    return [line for line in re.findall(r"`([^`]+)`", section(page, title)) if line.startswith(word)]


def test_a_running_job_goes_on_through_the_upgrade_from_the_last_release(released, tmp_path):
    package, _ = packages.of_this_tree()
    cluster, [install] = released, typed_in_text("backup-and-upgrade.md", "Upgrade", "apt install ./oarlock")
    before = cluster.type_in("oarlock --version")
    jobs = cluster.submit(WAITS), cluster.submit(WAITS)
    for job in jobs:
        cluster.until(job, "Running")
    cluster.type_in("rm oarlock_*.deb")
    cluster.head.copy(package, f"/root/{package.name}")
    cluster.type_in(install)
    cluster.type_in("systemctl restart oarlock")
    assert (before, cluster.type_in("oarlock --version")) == (
        f"oarlock {RELEASES[0].version}\n",
        f"oarlock {__version__}\n",
    )
    assert [cluster.job(job)["state"] for job in jobs] == ["Running", "Running"]
    let_end(*cluster.nodes())
    for job in jobs:
        assert cluster.until(job, "Terminated")["exit_code"] == 3 << 8
        assert cluster.printed(job) == "began\nended\n"
    assert "all holds" in cluster.type_in("oarlock check")


OF_THE_TEST = ("/root/.ssh", "/root/oarlock_", "/home/", "/var/tmp/systemd-private-")
LEFT = ("/var/lib/oarlock", "/etc/oarlock")
"""What stays on the head: the database, and settings that were changed."""


def test_taking_it_away_leaves_the_database_and_nothing_else(cluster):
    before = [set(typed.printed.splitlines()) for typed in cluster.history if typed.line == FILES]
    job = cluster.submit("hostname", resources=BOTH)
    cluster.until(job, "Terminated")
    stop, undo, remove, *on_nodes = typed_lines(PAGE, "Taking it away")
    for line in (stop, f"{undo} || test $? = 2", remove):  # the database stays, and it says so
        cluster.type_in(line)
    for line in on_nodes:
        for node in cluster.nodes():
            cluster.type_in(line, on=node.name)
    for machine, old in zip(cluster.machines.values(), before, strict=True):
        now = set(machine.run(FILES).splitlines())
        tolerated = (*OF_THE_TEST, *LEFT) if machine is cluster.head else OF_THE_TEST
        assert {path for path in now - old if not path.startswith(tolerated)} == set(), machine.name
        assert old - now == set(), machine.name
        assert "oarlock" not in machine.run("cat /root/.ssh/authorized_keys"), machine.name
    assert cluster.head.run("systemctl show oarlock -p LoadState") == "LoadState=not-found\n"
    for machine in cluster.machines.values():
        assert machine.run("systemctl --failed --no-legend") == ""
        assert "oarlock" not in machine.run("ps -e -o args"), machine.name


POSTGRES = """
set -e
echo "listen_addresses = '*'" >> /etc/postgresql/15/main/postgresql.conf
echo "host all all 10.213.0.0/24 scram-sha-256" >> /etc/postgresql/15/main/pg_hba.conf
systemctl start postgresql@15-main
cd /
runuser -u postgres -- psql -c "CREATE ROLE oar LOGIN PASSWORD 'secret'" -c "CREATE DATABASE oar OWNER oar"
"""
DATABASE = """
DB_TYPE="Pg"
DB_HOSTNAME="node2"
DB_BASE_NAME="oar"
DB_BASE_LOGIN="oar"
DB_BASE_PASSWD="secret"
"""
STATUS = "systemctl show oarlock -P StatusText"


def test_a_standby_takes_over_when_the_server_loses_power(stopped):
    """Jobs and the database are on the third machine."""
    cluster, (standby, worker) = stopped, stopped.nodes()
    package, _ = packages.of_this_tree()
    worker.run(POSTGRES, seconds=clusters.PATIENCE)
    standby.copy(package, f"/root/{package.name}")
    cluster.type_in(f"apt-get install -y ./{package.name}", on="node1")
    cluster.type_in(f"cat >> /etc/oarlock/oar.conf <<'END'{DATABASE}END")
    by_key = "-i /etc/oarlock/id_ed25519 -o UserKnownHostsFile=/etc/oarlock/known_hosts"
    cluster.type_in(f"scp {by_key} -r /etc/oarlock node1:/etc/")
    cluster.type_in("rm -r /var/lib/oarlock/*")  # that site begins with PostgreSQL
    for name in ("head", "node1"):
        cluster.type_in("oarlock setup server --standby", on=name)
    cluster.type_in("systemctl start oarlock")
    wait_until(lambda: cluster.head.run(STATUS) == "serving\n", "the server", clusters.PATIENCE)
    cluster.type_in("systemctl start oarlock", on="node1")
    wait_until(lambda: standby.run(STATUS) == "standing by\n", "the standby", clusters.PATIENCE)
    cluster.type_in("oarlock discover -x node2")
    job = cluster.submit(WAITS)
    cluster.until(job, "Running")
    cluster.head.cut_power()
    began = time.monotonic()
    wait_until(lambda: standby.run(STATUS) == "serving\n", what="the take-over", seconds=clusters.PATIENCE)
    print(f"{time.monotonic() - began:.1f} s until the standby serves")
    assert cluster.job(job, on="node1")["state"] == "Running"
    cluster.head.start(saved=False)
    wait_until(lambda: cluster.head.run(STATUS) == "standing by\n", what="the first server", seconds=clusters.PATIENCE)
    let_end(worker)
    assert cluster.until(job, "Terminated", on="node1")["exit_code"] == 3 << 8
    assert cluster.printed(job) == "began\nended\n"


NETWORK = """
SERVER_HOSTNAME="0.0.0.0"
ALLOWED_NETWORKS="127.0.0.0/8 10.213.0.0/24"
TLS_CERTIFICATE="/etc/oarlock/cert.pem"
TLS_KEY="/etc/oarlock/key.pem"
"""


def test_a_login_host_with_a_relay_submits_for_its_users(stopped, tmp_path):
    cluster, login_host = stopped, stopped.machines["node1"]
    _, client = packages.of_this_tree()
    pem, key = certificate(tmp_path, "head")
    cluster.head.copy(pem, "/etc/oarlock/cert.pem")
    cluster.head.copy(key, "/etc/oarlock/key.pem")
    cluster.type_in(f"chmod 600 /etc/oarlock/key.pem; cat >> /etc/oarlock/oar.conf <<'END'{NETWORK}END")
    cluster.type_in("systemctl start oarlock")
    token, *setup = [line.replace("login1", "node1") for line in typed_lines("login-hosts.md", "A relay")]
    cluster.type_in(token)
    (tmp_path / "relay.key").write_text(cluster.head.run("cat /root/node1.key"))
    login_host.copy(tmp_path / "relay.key", "/root/node1.key")
    login_host.copy(pem, "/root/ca.pem")
    login_host.copy(client, f"/root/{client.name}")
    cluster.type_in(f"apt-get install -y ./{client.name}", on="node1")
    for line in setup:
        cluster.type_in(line, on="node1")
    printed = cluster.type_in("oarsub -l nodes=1,walltime=0:10:00 hostname", "alice", on="node1")
    job = int(printed.rpartition("OAR_JOB_ID=")[2])
    ended = cluster.until(job, "Terminated")
    assert (ended["exit_code"], ended["owner"]) == (0, "alice")
    assert login_host.run("systemctl show oarlock-relay -P NRestarts") == "0\n"
    login_host.run("systemctl restart oarlock-relay")
    assert f"Job_Id: {job}" in cluster.type_in(f"oarstat -f -j {job}", "bob", on="node1")
    cluster.type_in("oarlock setup login --undo", on="node1")
    assert login_host.run("ls /etc/oarlock /run/oarlock-relay", check=False) == ""
