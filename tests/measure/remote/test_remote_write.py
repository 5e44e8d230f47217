"""Remote write: the series of /metrics in a real Prometheus; an engine that is away costs nothing but itself."""

import re
import sys
import time
from collections import Counter

import cramjam
import pytest

from oarlock.measure.batch import JobFacts
from oarlock.measure.live import LiveUsage
from oarlock.measure.remote.remote_series import RemoteSeries, encode_labels
from oarlock.measure.remote.remote_write import RemoteWriter
from oarlock.measure.remote.target import RemoteTarget, check_installed
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.wire import encode_sample
from tests.measure.real_prometheus import Prometheus
from tests.measure.remote.receivers import FACTS, receiving, sample
from tests.waiting import wait_until

NODE = {"load_1min": 2.0, 'cpu_seconds_total{mode="user"}': 50.0}
JOB = {
    "cpu_seconds_total": 30.0,
    "memory_anonymous_bytes": 4096.0,
    'core_cpu_seconds_total{core="0"}': 12.5,
    'process_cpu_seconds_total{exe="a \\"b\\""}': 1.0,
}
BROKEN = float("nan")


def looked_up(ids):
    return {job: FACTS[job] for job in ids if job in FACTS}


def writer(url: str, **options) -> RemoteWriter:
    return RemoteWriter(RemoteTarget(url, "secret", "lab", "alpha"), looked_up, gather_seconds=0.0, first_pause=0.01,
                        **options)  # fmt: skip


def on_the_page(at: float) -> set[tuple[tuple[str, str], ...]]:
    """Return the labels of every series of the server's page, without empty ones."""
    live = LiveUsage(10, "alpha")
    live.take("n1", encode_sample(at, NODE, {7: JOB}), {7}, at=at)
    live.learn(FACTS)
    lines = live.page(live.batches(now=at)).decode().splitlines()
    series = set()
    for line in lines:
        if not line.startswith("#"):
            name, labels = re.fullmatch(r"(\w+)(?:\{(.*)\})? \S+", line).groups()
            pairs = re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or "")
            texts = {label: text.replace('\\"', '"') for label, text in pairs if text}
            series.add(tuple(sorted({"__name__": name, **texts}.items())))
    return series


@pytest.mark.component("prometheus")
def test_a_real_prometheus_gets_the_series_of_the_page_and_ends_them(tmp_path):
    prometheus = Prometheus(tmp_path, "  []", "--web.enable-remote-write-receiver")
    try:
        wait_until(prometheus.ready, "Prometheus", 30)
        begin = time.time() - 60
        remote = writer(f"{prometheus.url}/write")
        for second in range(0, 40, 10):
            values = {**JOB, "cpu_seconds_total": 30.0 + 2 * second, "memory_cache_bytes": BROKEN}
            remote.put(sample(begin + second, NODE, {7: values}))
        wait_until(lambda: prometheus.ask('oarlock_job_cpu_seconds_total{job_id="7"}', at=begin + 30), "a sample")
        series = prometheus.all_series('{instance="n1"}', since=begin - 5, until=begin + 30)
        assert {tuple(sorted(labels.items())) for labels in series} == on_the_page(begin)
        rate = "rate(oarlock_job_cpu_seconds_total{job_id='7',user='ada',account='physics'}[30s])"
        assert prometheus.value(rate, begin + 30) == pytest.approx(2.0)
        remote.put(sample(begin + 40, NODE, {}))
        wait_until(lambda: prometheus.value("oarlock_node_jobs", begin + 41) == 0, "the end of the job")
        assert prometheus.ask('{job_id="7"}', at=begin + 41) == []
        remote.close()
        assert remote.figures["remote_refused"] == remote.figures["remote_dropped"] == 0
    finally:
        prometheus.end()


def test_a_request_says_what_the_protocol_wants_and_who_writes():
    with receiving() as receiver:
        remote = writer(receiver.url)
        remote.put(sample(1000, NODE, {7: JOB}))
        wait_until(lambda: receiver.requests)
        remote.close()
    [(headers, body)] = receiver.requests
    wanted = {"Content-Encoding": "snappy", "Content-Type": "application/x-protobuf", "Authorization": "Bearer secret",
              "X-Prometheus-Remote-Write-Version": "0.1.0", "X-Scope-OrgID": "lab"}  # fmt: skip
    assert wanted.items() <= headers.items()
    parts = b"".join(RemoteSeries("alpha").encode(sample(1000, NODE, {7: JOB}), FACTS))
    assert bytes(cramjam.snappy.decompress_raw(body)) == parts
    assert remote.figures["remote_written"] == 6


@pytest.mark.parametrize("status", [429, 500, 503, 0])
def test_what_an_engine_cannot_take_now_is_sent_again_in_order(status, caplog):
    with receiving() as receiver:
        receiver.status = lambda count: status if count <= 3 else 204
        remote = writer(receiver.url)
        remote.put(sample(1000, NODE, {7: JOB}))
        wait_until(lambda: remote.figures["remote_written"])
        remote.put(sample(1010, NODE, {7: JOB}))
        wait_until(lambda: remote.figures["remote_written"] == 12)
        remote.close()
    bodies = [body for _, body in receiver.requests]
    assert len(bodies) == 5
    assert len(set(bodies[:4])) == 1
    assert (remote.figures["remote_dropped"], remote.figures["remote_failing"]) == (0, 0)
    assert caplog.text.count("the engine takes no samples now") == 1


def test_an_engine_may_say_how_long_to_wait():
    with receiving() as receiver:
        receiver.status = lambda count: 429 if count == 1 else 204
        receiver.headers = {"Retry-After": "1"}
        remote = writer(receiver.url)
        begin = time.monotonic()
        remote.put(sample(1000, NODE, {}))
        wait_until(lambda: remote.figures["remote_written"])
        remote.close()
    assert time.monotonic() - begin >= 1


def test_what_an_engine_refuses_is_dropped_with_one_line(caplog):
    with receiving() as receiver:
        receiver.status = lambda count: 400 if count < 3 else 204
        remote = writer(receiver.url)
        for second in (1000, 1010, 1020):
            remote.put(sample(second, NODE, {}))
            wait_until(lambda at=second: remote.figures["remote_refused"] + remote.figures["remote_written"] ==
                       (at - 990) / 10 * 2)  # fmt: skip
        remote.close()
    assert Counter(remote.figures) >= Counter({"remote_refused": 4, "remote_written": 2, "remote_retries": 0})
    lines = [record for record in caplog.records if "refused by the engine" in record.message]
    assert [line.why for line in lines] == ["400 out of bounds"]


def test_an_engine_that_is_away_costs_the_oldest_samples_and_no_time():
    with receiving() as receiver:
        receiver.status = lambda _count: 503
        remote = writer(receiver.url, most_values=20)
        for second in range(1000, 1100):
            remote.put(sample(second, NODE, {}))
        figures = remote.figures
        assert figures["remote_queue"] <= 20
        wait_until(lambda: remote.figures["remote_failing"])
        receiver.status = lambda _count: 204
        wait_until(lambda: not remote.figures["remote_queue"] and not remote.figures["remote_failing"])
        remote.close()
    figures = remote.figures
    assert figures["remote_dropped"] >= 100
    assert figures["remote_dropped"] + figures["remote_written"] == 200
    last = b"".join(RemoteSeries("alpha").encode(sample(1099, NODE, {}), FACTS))
    assert last in bytes(cramjam.snappy.decompress_raw(receiver.requests[-1][1]))


def test_a_job_is_not_written_before_its_owner_is_known():
    series = RemoteSeries("alpha")
    assert not [part for part in series.encode(sample(1000, {}, {9: JOB}), FACTS) if b"job_id" in part]
    assert [part for part in series.encode(sample(1010, {}, {8: JOB}), FACTS) if b"chemistry" in part]


def test_a_job_of_another_cluster_has_the_labels_of_its_manager():
    number = 10**12 + 1
    measured = sample(1000, NODE, {number: JOB})._replace(cluster="beta")
    facts = {number: JobFacts("ada", "physics", "run", "4242", "slurm")}
    parts = list(RemoteSeries("alpha").encode(measured, facts))
    wanted = {"__name__": "oarlock_job_memory_anonymous_bytes", "job_id": "4242", "user": "ada", "account": "physics",
              "cluster": "beta", "instance": "n1"}  # fmt: skip
    assert [part for part in parts if encode_labels(wanted) in part]
    assert not [part for part in parts if b"alpha" in part or str(number).encode() in part]
    assert [part for part in parts if b"oarlock_node_load_1min" in part and b"beta" in part]


def test_an_engine_is_refused_where_snappy_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "cramjam", None)
    with pytest.raises(ConfigRefused, match="REMOTE_WRITE_URL is set, and cramjam is not installed"):
        check_installed()
