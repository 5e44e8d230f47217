import pytest

from oarlock.node.sources.files import UNIFIED
from oarlock.node.sources.job import blockio, tasks
from oarlock.node.sources.job.blockio import BlockIoSource
from oarlock.node.sources.job.tasks import PidsSource, PressureSource
from tests.monitoring import cases, job_at, recorded
from tests.node.sources.test_cpu_and_memory import read_all


def test_block_traffic_of_version_1_is_told_by_device(tmp_path):
    recorded(
        tmp_path,
        {
            "proc/diskstats": " 254       0 vda 1 2 3\n   8      16 sdb 1 2 3\n",
            "blkio/blkio.throttle.io_service_bytes_recursive": (
                "254:0 Read 4096\n254:0 Write 8192\n254:0 Sync 8192\n254:0 Total 12288\n9:9 Read 1\nTotal 12289\n"
            ),
            "blkio/blkio.throttle.io_serviced_recursive": "254:0 Read 1\n254:0 Write 2\nTotal 3\n",
        },
    )
    source = BlockIoSource(proc=str(tmp_path / "proc"))
    assert read_all([source], job_at({"blkio": tmp_path / "blkio"})) == {
        'block_read_bytes_total{device="vda"}': 4096,
        'block_written_bytes_total{device="vda"}': 8192,
        'block_read_bytes_total{device="9:9"}': 1,
        'block_reads_total{device="vda"}': 1,
        'block_writes_total{device="vda"}': 2,
    }


def test_block_traffic_of_version_2_is_told_in_the_same_names(tmp_path):
    recorded(
        tmp_path, {"io.stat": "8:16 rbytes=10 wbytes=20 rios=1 wios=2 dbytes=0 dios=0\n", "diskstats": "8 16 sdb\n"}
    )
    assert read_all([BlockIoSource(proc=str(tmp_path))], job_at({UNIFIED: tmp_path})) == {
        'block_read_bytes_total{device="sdb"}': 10,
        'block_written_bytes_total{device="sdb"}': 20,
        'block_reads_total{device="sdb"}': 1,
        'block_writes_total{device="sdb"}': 2,
    }


def test_a_job_that_touched_no_disk_has_no_series():
    assert blockio.throttle_v1(b"Total 0\n", b"Total 0\n") == {}
    assert blockio.stat_v2(b"") == {}


def test_tasks_and_their_limit(tmp_path):
    recorded(tmp_path, {"pids.current": "12\n", "pids.max": "4096\n"})
    assert read_all([PidsSource()], job_at({"pids": tmp_path})) == {"tasks": 12, "tasks_limit": 4096}
    recorded(tmp_path, {"pids.max": "max\n", "pids.events": "max 3\n"})
    assert read_all([PidsSource()], job_at({UNIFIED: tmp_path})) == {"tasks": 12, "tasks_refused_total": 3}


def test_refused_tasks_are_read_again_only_near_the_limit(tmp_path):
    recorded(tmp_path, {"pids.current": "12\n", "pids.max": "16\n", "pids.events": "max 0\n"})
    probe = PidsSource().open(job_at({"pids": tmp_path}))
    seen = []
    for current, refused in ((12, 0), (12, 5), (16, 7), (3, 9)):
        recorded(tmp_path, {"pids.current": f"{current}\n", "pids.events": f"max {refused}\n"})
        values = {}
        probe.read(values, thorough=not seen)
        seen.append(values["tasks_refused_total"])
    probe.close()
    assert seen == [0, 0, 7, 7]


def test_pressure_is_what_was_waited_in_seconds(tmp_path):
    line = "avg10=0.00 avg60=0.00 avg300=0.00 total="
    recorded(tmp_path, {"cpu.pressure": f"some {line}2500000\nfull {line}1000000\n", "io.pressure": f"some {line}0\n"})
    assert read_all([PressureSource()], job_at({UNIFIED: tmp_path})) == {
        "cpu_pressure_some_seconds_total": 2.5,
        "cpu_pressure_full_seconds_total": 1.0,
        "io_pressure_some_seconds_total": 0.0,
    }


@pytest.mark.parametrize("case", cases("psi"))
def test_pressure_files_are_read_as_peers_read_them(case):
    text, expected = case["input"]["text"].encode(), case["expected"]
    if "error" in expected:
        with pytest.raises(ValueError, match="not a line of a pressure file"):
            tasks.totals(text)
    else:
        found = tasks.totals(text)
        assert {f"{share}_total_usec": found.get(share) for share in ("some", "full")} == expected


def test_lines_of_a_pressure_file_that_we_do_not_know_are_passed_over():
    text = b"some avg10=0.00 total=150\n\nirq avg10=0.00 total=9\nnew line\nfull avg10=0.00\n"
    assert tasks.totals(text) == {"some": 150}
    with pytest.raises(ValueError, match="not a line of a pressure file"):
        tasks.totals(b"some total=18446744073709551616\n")


@pytest.mark.parametrize("source", [BlockIoSource(), PidsSource(), PressureSource()])
def test_a_job_without_a_controller_is_not_opened(source, tmp_path):
    assert source.open(job_at({"cpuacct": tmp_path})) is None
