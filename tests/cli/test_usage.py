"""What jobs used, as people read it."""

import pytest

from oarlock.cli.usage import size, table

NOTHING = dict.fromkeys(["cpu_seconds", "memory_bytes", "memory_peak_bytes", "read_bytes", "written_bytes"])


def test_the_table_has_a_line_a_job_and_a_dash_for_what_is_not_known():
    running = {"job_id": 42, "final": False, "at": 5.0, "cpu_seconds": 61.4, "memory_bytes": 3 << 29,
               "memory_peak_bytes": 2 << 30, "read_bytes": 12 << 20, "written_bytes": 0}  # fmt: skip
    over = NOTHING | {"job_id": 7, "final": True, "at": 5.0, "cpu_seconds": 0.2}
    waiting = NOTHING | {"job_id": 8, "final": False, "at": 0.0}
    assert table([running, over, waiting]) == [
        "Job id Measured   CPU time Memory  Memory peak Read     Written",
        "------ ---------- -------- ------- ----------- -------- -------",
        "42     so far     0:01:01  1.5 GiB 2.0 GiB     12.0 MiB 0 B",
        "7      at its end 0:00:00  -       -           -        -",
        "8      not yet    -        -       -           -        -",
    ]


@pytest.mark.parametrize(
    ("count", "told"), [(None, "-"), (0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (1 << 60, "1024.0 PiB")]
)
def test_sizes_have_a_unit_that_makes_them_short(count, told):
    assert size(count) == told
