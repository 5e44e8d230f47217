"""The form of summaries: every key is explained, and what a job's nodes and attempts say is added up."""

import re
from pathlib import Path

import pytest

from oarlock.model.summary import (
    DayUsage,
    GpuMeasured,
    NodeMeasured,
    SummaryDetail,
    UsageTotals,
    parse_detail,
    totals,
    write_detail,
)
from oarlock.store.tables import job_summaries, usage_days

PAGE = (Path(__file__).parents[2] / "docs/reference/summaries.md").read_text()
KEYED = {"day", "user_name", "queue_name", "project"}


def _keys(heading: str) -> set[str]:
    """The keys in the first column of the table below a heading."""
    _, _, rest = PAGE.partition(f"\n{heading}")
    table = re.split(r"\n#+ ", rest)[0]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {key for cell in cells for key in re.findall(r"`(\w+)`", cell)}


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("## Columns", set(job_summaries.columns.keys())),
        ("## `detail`", set(SummaryDetail.__struct_fields__)),
        ("### `measured`", set(NodeMeasured.__struct_fields__)),
        ("### `gpus`", set(GpuMeasured.__struct_fields__)),
        ("## `usage_days`", set(DayUsage.__struct_fields__)),
        ("## `usage_days`", set(usage_days.columns.keys()) - KEYED),
    ],
)
def test_the_page_explains_every_key_and_no_other(heading: str, fields: set[str]):
    assert _keys(heading) == fields


def test_a_detail_is_read_as_it_was_written():
    detail = SummaryDetail(
        attempts={"1": {"n1": {"cpus": 2.0}}},
        measured={
            "1": {"n1": NodeMeasured(samples=3, threads_most={"a b": 4}, gpus={"GPU-1": GpuMeasured(model="x")})}
        },
        days={86400: DayUsage(jobs=1)},
    )
    text = write_detail(detail)
    assert parse_detail(text) == detail
    assert "null" not in text


def test_totals_take_the_larger_of_what_was_reported_and_what_was_sampled():
    """The first attempt reported its end, the second one still runs: since 50 s."""
    detail = SummaryDetail(
        attempts={"1": {"n1": {"cpu_seconds_total": 9.0, "seconds": 10.0, "cpus": 1.0, "written_bytes_total": 5.0}}},
        measured={
            "1": {"n1": NodeMeasured(samples=2, seconds=4.0, cpu_seconds=7.0, memory_own_most_bytes=900, calls=3)},
            "2": {
                "n1": NodeMeasured(
                    samples=5, seconds=40.0, cores=2, cpu_seconds=80.0, memory_own_most_bytes=400, calls=4,
                    cpu_least_10min_cores=0.5, memory_own_mean_bytes=300, core_least_seconds=30.0,
                    core_mean_seconds=40.0, core_most_seconds=50.0, memory_near_samples=1,
                    gpus={"g": GpuMeasured(seconds=40.0, busy_mean_ratio=0.25)},
                )
            },
        },
    )  # fmt: skip
    assert totals(detail, ran=50.0) == UsageTotals(
        nodes=("n1",), seconds=60.0, cpus=2, cpu_seconds=89.0, cpu_seconds_offered=110.0, cpu_least_10min_ratio=0.25,
        core_least_ratio=0.6, core_mean_ratio=0.8, core_most_ratio=1.0, memory_own_peak_bytes=900,
        memory_own_mean_bytes=300, memory_near_ratio=0.2, written_bytes=5, calls=7, gpus=1, gpu_seconds=40.0,
        gpu_busy_seconds=10.0, samples=7, coverage=pytest.approx((8.0 + 50.0) / 60.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("seconds", "used", "offered"),
    [(0.004, 0.009, 0.009), (0.0, 0.02, 0.02), (10.0, 5.0, 20.0), (10.0, 20.19, 20.19), (10.0, 40.0, 20.0)],
)
def test_a_job_of_milliseconds_was_not_busier_than_its_cores(seconds, used, offered):
    """The kernel counts from the fork; four busy cores of two held are told as they are."""
    row = {"cpus": 2.0, "seconds": seconds, "cpu_seconds_total": used}
    assert totals(SummaryDetail(attempts={"1": {"n1": row}})).cpu_seconds_offered == pytest.approx(offered)
