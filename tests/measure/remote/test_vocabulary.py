"""Names of other exporters, as we ask an engine for them."""

import http.server
import json
import re
import threading
from urllib.parse import parse_qs

import pytest

from oarlock.measure.collect.questions import SchedulerFigures
from oarlock.measure.collect.series import SeriesRange
from oarlock.measure.metrics import catalogue
from oarlock.measure.remote import facilities
from oarlock.measure.remote.engine import PrometheusTarget
from oarlock.measure.remote.node_power import read_power
from oarlock.measure.remote.range_query import RemoteSubject, read_curves
from oarlock.measure.remote.slurm_exporter import read_figures
from oarlock.measure.remote.vocabulary import FOREIGN_NAMES, vocabulary
from tests.measure.real_prometheus import PORTAL

_UNLISTED = {"node_memory_MemAvailable_bytes", "slurm_job_memory_total_gpu"}  # newer than the portal


def _names(family):
    return {series.name for entries in vocabulary(family).series.values() for series in entries}


@pytest.mark.skipif(not PORTAL.exists(), reason="the names that a real portal asks for are not here")
@pytest.mark.parametrize("family", ["slurm", "node", "redfish", "lustre"])
def test_every_name_we_ask_for_is_one_that_a_real_portal_knows(family):
    assert _names(family) <= json.loads(PORTAL.read_text())["metrics"].keys() | _UNLISTED


@pytest.mark.parametrize(
    ("family", "metric", "expression"),
    [
        ("slurm", "cpu_seconds_total", "(sum by (instance) (slurm_job_core_usage_total{a})) / 1000000000.0"),
        ("slurm", "cpus", "count by (instance) (slurm_job_core_usage_total{a})"),
        ("slurm", 'core_cpu_seconds_total{core="3"}', '(slurm_job_core_usage_total{a,core="3"}) / 1000000000.0'),
        ("jobs", 'process_threads{exe="x"}', 'jobs_thread_count{a,proc_name="x"}'),
        ("lustre", "read_bytes_total", 'sum (lustre_job_read_bytes_total{a,component="ost"})'),
        ("oarlock", "cpus", "oarlock_job_cpus{a}"),
        ("slurm", "gpu_pcie_received_bytes_per_second", 'slurm_job_pcie_gpu{a,direction="RX"}'),
    ],
)
def test_a_metric_is_asked_for_in_the_words_of_the_exporter(family, metric, expression):
    [(series, own)] = vocabulary(family).find("job", metric)
    assert series.expression(["a", *own]) == expression


NOT_ASKED = {
    "Intel PCM": ("job.graph_mem_bdw", "job.map_pcm_cores", "job.graph_cache_rate", "job.graph_ipc",
                  "job.graph_cpu_interconnect"),
    "quotas of lfs_quota and GPFS": ("usersummary.quota", "quotasgpfs.get_quota", "search.query"),
    "requests of disks of virtual machines": ("cloud.graph_io",),
    "GPUs of a node that no job has": ("job.power(gpu job)",),
}  # fmt: skip
"""What a real portal asks Prometheus for and we do not, by subject: the page about sources says so."""


class _Recorder(http.server.BaseHTTPRequestHandler):
    """An engine that has nothing, and remembers what it was asked."""

    def do_POST(self):
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        self.server.asked.append(form["query"][0])
        content = b'{"status": "success", "data": {"result": []}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def _ask_everything(target):
    whole = SeriesRange([], 0.0, 9000.0, 10)
    for subject in (RemoteSubject(7), RemoteSubject(node="n1")):
        metrics = [name for scope, name in catalogue() if scope == subject.scope]
        read_curves(target, subject, whole._replace(metrics=metrics))
    read_figures(target, SchedulerFigures(9000.0, 0.0))
    read_power(target, since=0.0, until=9000.0, nodes=["n1"])
    facilities.read_storage(target, now=9000.0, seconds=60)
    facilities.read_machines(target, now=9000.0)


@pytest.mark.skipif(not PORTAL.exists(), reason="the queries of a real portal are not here")
def test_what_a_real_portal_asks_for_is_asked_by_us_as_far_as_we_say():
    recorded = json.loads(PORTAL.read_text())
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Recorder) as engine:
        engine.asked = []
        threading.Thread(target=engine.serve_forever, daemon=True).start()
        _ask_everything(PrometheusTarget(f"http://127.0.0.1:{engine.server_port}", names=FOREIGN_NAMES))
        engine.shutdown()
    names = set(re.findall(r"[A-Za-z]\w{3,}", " ".join(engine.asked)))
    names |= {f"slurm_{kind}_{amount}" for kind in ("cpus", "gpus") for amount in ("alloc", "idle", "total")}
    rules = {rule["record"]: set(re.findall(r"[a-z]+_\w+", rule["expr"])) for rule in recorded["recording_rules"]}
    asked, missing = 0, set()
    for query in recorded["queries"]:
        if all(rules.get(metric, {metric}) & names for metric in query["metrics"]):
            asked += 1
        else:
            missing.add(query["id"].rpartition(".")[0])
    assert missing == {query for queries in NOT_ASKED.values() for query in queries}
    assert (asked, len(recorded["queries"])) == (184, 203)


def test_every_family_has_names_and_the_label_of_a_job():
    assert {family: bool(_names(family)) for family in FOREIGN_NAMES} == dict.fromkeys(FOREIGN_NAMES, True)
    labels = {family: vocabulary(family).job_label for family in ("oarlock", "slurm", "jobs", "lustre")}
    assert labels == {"oarlock": "job_id", "slurm": "slurmjobid", "jobs": "slurm_job", "lustre": "jobid"}
