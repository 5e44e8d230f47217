from oarlock.measure.permissions import Permissions, missing_permissions, parse_capabilities, process_permissions

ALL = ("cpu", "processes", "perf", "rapl", "ipmi")
ENERGY, MANAGEMENT = "/sys/class/powercap/intel-rapl:0/energy_uj", "/dev/ipmi0"
PLAIN = Permissions(frozenset(), 2, frozenset({ENERGY, MANAGEMENT}))


def test_a_plain_user_is_told_in_one_line_each_what_cannot_be_read():
    lines = list(missing_permissions(ALL, PLAIN))
    assert [line.partition(":")[0] for line in lines] == [
        "I/O, open files and executables of other users' processes cannot be read",
        "events cannot be counted",
        "energy of the processors cannot be read",
        "the management controller cannot be asked",
    ]
    assert list(missing_permissions(("cpu", "memory"), PLAIN)) == []


def test_capabilities_open_what_they_are_for():
    assert not list(missing_permissions(("processes",), PLAIN._replace(capabilities=frozenset({"CAP_SYS_PTRACE"}))))
    assert not list(missing_permissions(("perf", "rapl"), PLAIN._replace(capabilities=frozenset({"CAP_PERFMON"}))))
    assert not list(missing_permissions(("perf",), PLAIN._replace(perf_paranoid=0)))


def test_capabilities_are_read_from_the_kernels_mask():
    assert parse_capabilities("Name:\tx\nCapEff:\t0000004000080000\n") == {"CAP_SYS_PTRACE", "CAP_PERFMON"}
    assert parse_capabilities("Name:\tx\n") == frozenset()
    assert process_permissions().capabilities <= {
        "CAP_DAC_READ_SEARCH",
        "CAP_SYS_PTRACE",
        "CAP_SYS_ADMIN",
        "CAP_PERFMON",
    }
