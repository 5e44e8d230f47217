import csv
import json
import os
import subprocess
import urllib.request

import pytest

from oarlock.measure.exposition import Exposition
from oarlock.measure.outputs import COLUMNS, CsvOutput, JsonLinesOutput, PushGateway
from oarlock.model.errors import ConfigRefused
from tests.measure.batches import batch, job, naming
from tests.measure.real import free_port
from tests.waiting import wait_until

PATH = "/slurm/uid_1001/job_7"
FIRST = batch(job("7", {"cpu_seconds_total": 1.0, "cpus": 2}, path=PATH), at=1000.5, node={"load_1min": 0.25})
SECOND = batch(job("7", {"cpu_seconds_total": 1.5, "cpus": 2}), at=1001.5, node={"load_1min": 0.5})


def test_json_lines_carry_a_job_with_its_owner_and_the_node_with_its_jobs(tmp_path):
    sink = JsonLinesOutput(str(tmp_path / "out.jsonl"))
    sink.take(FIRST, naming("alumet", "oarlock"))
    sink.take(SECOND, naming("alumet", "oarlock"))
    sink.close()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    whose = {"job_id": 7, "user": "ada", "user_id": 1001, "manager": "slurm", "account": "physics"}
    own = {"oarlock_job_cpu_seconds_total": 1.0, "oarlock_job_cpus": 2}
    assert lines[:2] == [
        {"timestamp": 1000.5, "hostname": "node7", **whose, "measurements": own},
        {
            "timestamp": 1000.5,
            "hostname": "node7",
            "involved_jobs": [7],
            "measurements": {"oarlock_node_load_1min": 0.25},
        },
    ]
    assert lines[2]["measurements"] == {
        **own, "oarlock_job_cpu_seconds_total": 1.5, 'cpu_time_delta{kind="total"}': 500_000_000,
        'cpu_percent{kind="total"}': 50.0,
    }  # fmt: skip


def test_csv_has_a_row_a_measurement_and_writes_its_head_once(tmp_path):
    path = tmp_path / "out.csv"
    for taken in (FIRST, SECOND):
        sink = CsvOutput(str(path))
        sink.take(taken, naming("oarlock"))
        sink.close()
    head, *rows = csv.reader(path.read_text().splitlines(), delimiter=";")
    assert tuple(head) == COLUMNS
    assert len(rows) == 6
    assert dict(zip(head, rows[0], strict=True)) == {
        "metric": "oarlock_job_cpu_seconds_total", "timestamp": "1970-01-01T00:16:40.500000Z", "value": "1.0",
        "resource_kind": "local_machine", "resource_id": "", "consumer_kind": "cgroup", "consumer_id": PATH,
        "job_id": "7", "user_id": "1001", "user": "ada", "account": "physics", "involved_jobs": "", "labels": "",
    }  # fmt: skip
    node = dict(zip(head, rows[2], strict=True))
    assert (node["metric"], node["consumer_kind"], node["involved_jobs"]) == (
        "oarlock_node_load_1min", "local_machine", "[7]",
    )  # fmt: skip


@pytest.fixture
def small_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if os.geteuid() or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs to mount a small disk (root)")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


@pytest.mark.parametrize("make", [CsvOutput, JsonLinesOutput])
def test_a_disk_that_is_full_and_then_free_again_leaves_no_part_of_a_row(small_disk, make):
    path = small_disk / "out"
    sink, named, refused = make(str(path)), naming("oarlock"), 0
    values = {f'core_cpu_seconds_total{{core="{core}"}}': 1.0 for core in range(64)}
    while refused < 3:
        try:
            sink.take(batch(job("7", values)), named)
        except OSError:
            refused += 1
    subprocess.run(["mount", "-o", "remount,size=1m", str(small_disk)], check=True)
    sink.take(batch(job("8", values)), named)
    sink.close()
    text = path.read_text()
    if make is CsvOutput:
        rows = list(csv.reader(text.splitlines(), delimiter=";"))
        assert {len(row) for row in rows} == {len(COLUMNS)}
        assert [row[7] for row in rows[1:]] == ["7"] * (len(rows) - 65) + ["8"] * 64
    else:
        lines = [json.loads(line) for line in text.splitlines()]
        assert [line.get("job_id") for line in lines[-2:]] == [8, None]
        assert len({len(line["measurements"]) for line in lines[::2]}) == 1


def test_what_a_killed_agent_left_of_a_row_does_not_spoil_the_next(tmp_path):
    path = tmp_path / "out.csv"
    path.write_text(";".join(COLUMNS) + "\noarlock_job_cp")
    sink = CsvOutput(str(path))
    sink.take(FIRST, naming("oarlock"))
    sink.close()
    assert [len(line.split(";")) for line in path.read_text().splitlines()] == [13, 1, 13, 13, 13]


def test_a_cgroup_that_is_no_job_says_which_it_is(tmp_path):
    sink = JsonLinesOutput(str(tmp_path / "out.jsonl"))
    sink.take(batch(job("system.slice", {"cpus": 2}, scope="cgroup", manager="cgroup")), naming("oarlock"))
    sink.close()
    first = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[0])
    assert (first["cgroup"], first["measurements"]) == ("system.slice", {"oarlock_cgroup_cpus": 2})


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigRefused, match="not the http address"):
        PushGateway("gateway:9091", "node7")


@pytest.mark.component("pushgateway")
def test_a_push_gateway_has_the_latest_page_and_nothing_at_the_end(tmp_path):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = ["prometheus-pushgateway", f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as program:
        try:
            wait_until(lambda: fetched(url) is not None, "the push gateway", 30)
            page = Exposition(naming("oarlock", "slurm", "jobs"))
            gateway = PushGateway(url, "node7")
            page.take(batch(job("7", {"cpus": 2}), job("8", {"cpus": 1})))
            gateway.offer(page.page)
            wait_until(lambda: 'job_id="8"' in fetched(url), "both jobs")
            page.take(batch(job("7", {"cpus": 2})))
            gateway.offer(page.page)
            wait_until(lambda: 'job_id="8"' not in fetched(url), "job 8 to vanish")
            assert 'instance="node7"' in fetched(url)
            gateway.close()
            assert "oarlock_job" not in fetched(url)
            assert gateway.failures == 0
        finally:
            program.terminate()


def test_a_push_gateway_that_is_not_there_costs_nothing_but_its_pages(caplog):
    page = Exposition(naming("oarlock"))
    page.take(FIRST)
    gateway = PushGateway(f"http://127.0.0.1:{free_port()}", "node7")
    gateway.offer(page.page)
    wait_until(lambda: gateway.failures == 1, "the failure")
    gateway.close()
    assert len(caplog.records) == 1


def fetched(url):
    try:
        with urllib.request.urlopen(f"{url}/metrics", timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None
