"""A cluster of three machines with systemd: the page Installing, jobs of each kind, machines that lose power."""

import pytest

from tests.bed import needs_root
from tests.page import typed_lines
from tests.vm import cluster as clusters
from tests.vm import packages
from tests.vm.cluster import PAGE
from tests.vm.terminal import terminal
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


def test_the_page_leads_from_three_bare_machines_to_the_first_job(bare, installed, tmp_path):
    package, _ = packages.of_this_tree()
    with bare(tmp_path) as cluster:
        clusters.installed(cluster, package)
        told = next(typed.printed for typed in cluster.history if "doctor" in typed.line)
        assert "broken" not in told
        submission, looking, login = typed_lines(PAGE, "5. The first job")
        assert "\nOAR_JOB_ID=1\n" in cluster.type_in(submission, "alice")
        assert "alice" in cluster.type_in(looking, "alice")
        assert "http" in cluster.type_in(login, "alice")
        job = cluster.until(1, "Terminated")
        wait_until(lambda: cluster.printed(1).count("\n") == 2, what="the output of the first job")
        assert (cluster.printed(1), job["exit_code"]) == ("node1\nnode2\n", 0)
        for typed in cluster.history:
            print(f"{typed.seconds:6.1f} s  {typed.line[:80]}")
        cluster.head.run("systemctl stop oarlock", seconds=clusters.PATIENCE)
        cluster.save(installed)


WAITS = "echo began; until test -e go; do sleep 1; done; echo ended; exit 3"


def let_end(*nodes):
    """Let the jobs that wait for it end; homes are each machine's own."""
    for node in nodes:
        node.run("touch /home/alice/go")


def group(node, job):
    """Return the cgroups of a job on a node."""
    return node.run(f"find /sys/fs/cgroup -type d -name 'alice_{job}'").split()


def test_an_interactive_job_has_a_shell_on_its_node(cluster):
    command = "oarsub -I -l nodes=1,walltime=0:10:00"
    with terminal(cluster.head, "alice", command, clusters.PATIENCE) as shell:
        shell.expect("Connect to OAR job")
        shell.type_in("echo I am $(id -un) on $(hostname), $(nproc) cores; tty; exit 5")
        shell.expect(r"I am alice on node[12], 2 cores")
        shell.expect("/dev/pts/0")
        shell.wait()
    assert cluster.until(cluster.last_job(), "Terminated")["jobType"] == "INTERACTIVE"


RANKS = """\
import ctypes, os, socket
mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)
known = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, "ompi_mpi_" + name)))
mpi.MPI_Init(None, None)
rank, total = ctypes.c_int(), ctypes.c_int()
mpi.MPI_Comm_rank(known("comm_world"), ctypes.byref(rank))
mpi.MPI_Allreduce(ctypes.byref(rank), ctypes.byref(total), 1, known("int"), known("op_sum"), known("comm_world"))
group = open("/proc/self/cgroup").read().strip().rpartition("/")[2]
print(f"{socket.gethostname()} {rank.value} {total.value} {group}", flush=True)
mpi.MPI_Finalize()
"""
# The card by which the tests look at a machine has one address everywhere; a site without such cards needs no file.
LAN_ONLY = "btl_tcp_if_include = 10.213.0.0/24\noob_tcp_if_include = 10.213.0.0/24\n"


def test_ranks_of_mpi_talk_over_two_nodes_in_the_group_of_their_job(cluster):
    for node in cluster.nodes():
        node.run(f"printf '{LAN_ONLY}' >> /etc/openmpi/openmpi-mca-params.conf")
        node.run(f"cat > /home/alice/ranks.py <<'END'\n{RANKS}END")
    job = cluster.submit("mpirun python3 /home/alice/ranks.py", resources="nodes=2,walltime=0:20:00")
    ended = cluster.until(job, "Terminated")
    group = f"alice_{job}"
    wanted = [f"node{1 + rank // 2} {rank} 6 {group}" for rank in range(4)]
    assert (sorted(cluster.printed(job).splitlines()), ended["exit_code"]) == (wanted, 0)


def test_a_running_job_outlives_a_reboot_of_the_server(cluster):
    job = cluster.submit(WAITS)
    cluster.until(job, "Running")
    cluster.head.run("systemctl reboot", check=False)
    cluster.head.boot_again()
    cluster.wait_for_server()
    assert cluster.job(job)["state"] == "Running"
    let_end(*cluster.nodes())
    ended = cluster.until(job, "Terminated")
    assert (cluster.printed(job), ended["exit_code"]) == ("began\nended\n", 3 << 8)


def test_a_job_that_ends_while_the_server_has_no_power_is_told_of_later(cluster):
    job = cluster.submit(WAITS)
    cluster.until(job, "Running")
    cluster.head.cut_power()
    let_end(*cluster.nodes())
    wait_until(lambda: "ended" in cluster.printed(job), what="the end of the job")
    cluster.head.start(saved=False)
    cluster.wait_for_server()
    ended = cluster.until(job, "Terminated")
    assert (cluster.printed(job), ended["exit_code"]) == ("began\nended\n", 3 << 8)
    assert "all holds" in cluster.type_in("oarlock check")


BOTH = "nodes=2,walltime=1:00:00"


def test_a_job_whose_second_node_loses_power_ends_and_the_node_stays_held(cluster):
    first, second = cluster.nodes()
    job = cluster.submit(WAITS, resources=BOTH)
    cluster.until(job, "Running")
    second.cut_power()
    waits = cluster.submit("hostname", resources=BOTH)
    let_end(first)
    wait_until(lambda: "ended" in first.run(f"cat /home/alice/OAR.{job}.stdout"), what="the end of the job")
    cluster.until(job, "Finishing")
    assert cluster.job(waits)["state"] == "Waiting", (
        "nobody else gets the node before it is known that nothing runs there"
    )
    second.start(saved=False)
    assert cluster.until(job, "Terminated")["exit_code"] == 3 << 8
    assert cluster.until(waits, "Terminated")["exit_code"] == 0


def test_a_job_whose_first_node_loses_power_is_lost_once_that_is_known(cluster):
    first, second = cluster.nodes()
    job = cluster.submit(WAITS, resources=BOTH)
    cluster.until(job, "Running")
    wait_until(lambda: group(second, job), what="the group of the job on its second node", seconds=clusters.PATIENCE)
    first.run("sync")
    first.cut_power()
    told = "journalctl -u oarlock -o cat | grep -c 'node still unreachable'"
    wait_until(lambda: int(cluster.head.run(told, check=False)), what="the server's notice", seconds=clusters.PATIENCE)
    waits = cluster.submit("hostname")
    assert (cluster.job(job)["state"], cluster.job(waits)["state"]) == ("Running", "Waiting")
    first.start(saved=False)
    assert cluster.until(job, "Error")["exit_code"] is None
    assert cluster.until(waits, "Terminated")["exit_code"] == 0
    wait_until(lambda: not group(second, job), what="the end of the job on its second node", seconds=clusters.PATIENCE)
    assert first.run(f"cat /home/alice/OAR.{job}.stdout") == "began\n", "it did not run again"
