"""What jobs used, as sacct tells of their steps."""

import pytest

from oarlock.lang.sacct import read_separated
from oarlock.lang.sacct_usage import USAGE_FIELDS, AccountedUsage, cpu_seconds, read_usage
from oarlock.model.errors import BadRequest
from tests.sources.test_slurm import RECORDED

MIB = 1 << 20


def row(number, *, cpu="00:00:00", elapsed=60, taken="", given="", held="billing=2,cpu=2,mem=1200M,node=1"):
    values = (number, "2", str(elapsed), cpu, held, taken, given)
    return dict(zip(USAGE_FIELDS, values, strict=True))


def test_memory_is_that_of_the_step_that_had_most_and_traffic_of_all():
    rows = [
        row("3", cpu="01:00.500"),
        row("3.batch", taken="cpu=00:00:01,mem=100M,fs/disk=10", given="fs/disk=1"),
        row("3.0", taken="cpu=00:00:59,mem=1.5G,fs/disk=1K", given="fs/disk=2M"),
    ]
    assert read_usage(rows) == {
        3: AccountedUsage(
            cpus=2, seconds=60, cpu_seconds=60.5, memory_asked_bytes=1200 * MIB, memory_most_bytes=1536 * MIB,
            read_bytes=1034, written_bytes=2 * MIB + 1,
        )
    }  # fmt: skip


def test_what_slurm_did_not_sample_is_unknown_and_not_zero():
    known = AccountedUsage(cpus=2, seconds=60, memory_asked_bytes=1200 * MIB)
    assert read_usage([row("4"), row("4.batch", taken="cpu=00:00:00,mem=0,pages=0")]) == {4: known}
    assert read_usage([row("5", held="")]) == {5: AccountedUsage(cpus=2, seconds=60)}


def test_what_is_no_number_is_left_out():
    rows = [
        row("x"),
        row(""),
        row("6.batch"),
        row("7", cpu="INVALID", held="mem=much,cpu"),
        row("7.0", taken="mem=-1K"),
    ]
    assert read_usage(rows) == {7: AccountedUsage(cpus=2, seconds=60)}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("00:14.588", 14.588), ("01:02:03", 3723.0), ("2-00:00:01", 172801.0), ("", 0.0), ("INVALID", 0.0), ("7", 0.0)],
)
def test_cpu_times_are_seconds(text, seconds):
    assert cpu_seconds(text) == seconds


@pytest.mark.skipif(RECORDED is None, reason="no output of a real sacct was recorded here")
def test_what_a_real_sacct_printed_of_steps_is_understood():
    lines = (RECORDED / "sacct_P_allfields.txt").read_text().splitlines()[1:]
    usage = read_usage(read_separated("\n".join(lines), "|", needed=USAGE_FIELDS, steps=True))
    # The line of a third step has bars in its command, and is left out: here, bars are the separator.
    assert usage[3] == AccountedUsage(
        cpus=2, seconds=33, cpu_seconds=14.588, memory_asked_bytes=1200 * MIB, memory_most_bytes=417256 << 10,
        read_bytes=66352 + 134308354, written_bytes=4947 + 134217730,
    )  # fmt: skip
    assert usage[6] == AccountedUsage(cpus=64, memory_asked_bytes=None), "it never ran"


def test_output_without_the_fields_is_refused():
    with pytest.raises(BadRequest, match="no field JobIDRaw"):
        list(read_separated("a|b\n1|2", "|", needed=USAGE_FIELDS, steps=True))
