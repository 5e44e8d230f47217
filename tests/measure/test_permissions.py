from oarlock.measure.permissions import Permissions, capabilities, missing, of_this_process

ALL = ("cpu", "processes", "perf", "rapl", "ipmi")
ENERGY, MANAGEMENT = "/sys/class/powercap/intel-rapl:0/energy_uj", "/dev/ipmi0"
PLAIN = Permissions(frozenset(), 2, frozenset({ENERGY, MANAGEMENT}))


def test_a_plain_user_is_told_in_one_line_each_what_cannot_be_read():
    told = list(missing(ALL, PLAIN))
    assert [line.partition(":")[0] for line in told] == [
        "I/O, open files and executables of other users' processes cannot be read",
        "events cannot be counted",
        "energy of the processors cannot be read",
        "the management controller cannot be asked",
    ]
    assert list(missing(("cpu", "memory"), PLAIN)) == []


def test_capabilities_open_what_they_are_for():
    assert not list(missing(("processes",), PLAIN._replace(capabilities=frozenset({"CAP_SYS_PTRACE"}))))
    assert not list(missing(("perf", "rapl"), PLAIN._replace(capabilities=frozenset({"CAP_PERFMON"}))))
    assert not list(missing(("perf",), PLAIN._replace(perf_paranoid=0)))


def test_capabilities_are_read_from_the_kernels_mask():
    assert capabilities("Name:\tx\nCapEff:\t0000004000080000\n") == {"CAP_SYS_PTRACE", "CAP_PERFMON"}
    assert capabilities("Name:\tx\n") == frozenset()
    assert of_this_process().capabilities <= {"CAP_DAC_READ_SEARCH", "CAP_SYS_PTRACE", "CAP_SYS_ADMIN", "CAP_PERFMON"}
