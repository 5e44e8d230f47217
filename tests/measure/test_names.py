import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oarlock.measure import names
from oarlock.measure.exposition import Exposition
from oarlock.measure.metrics import MetricKind, catalogue
from oarlock.measure.names import prometheus_name
from oarlock.measure.naming import Naming, growth, pairs, percent
from oarlock.model.errors import ConfigRefused
from oarlock.node.sources.probe import series
from tests.measure.batches import batch, job, lines, naming, pages
from tests.monitoring import CASES, ROOT, cases

PORTAL = ROOT.parent / "shared" / "data" / "portal-queries.json"
WHOSE = 'user="ada",account="physics",slurmjobid="7"'


def told(family, values, before=None, seconds=1.0):
    """Give what values become under the names of a family."""
    found = naming(family).measurements("job", values, before or {}, seconds)
    return {output.key: value for output, value in found}


def test_the_portal_gets_its_units_as_whole_numbers():
    gpu = '{gpu="0",gpu_type="A100",uuid="GPU-1"}'
    values = {'core_cpu_seconds_total{core="3"}': 0.003710825, f"gpu_power_watts{gpu}": 250.5,
              f"gpu_utilization_ratio{gpu}": 0.5, "memory_limit_bytes": 4096, "cpu_seconds_total": 1.0}  # fmt: skip
    assert told("slurm", values) == {
        'slurm_job_core_usage_total{core="3"}': 3710825,
        'slurm_job_power_gpu{gpu="0",gpu_type="A100"}': 250500,
        'slurm_job_utilization_gpu{gpu="0",gpu_type="A100"}': 50.0,
        "slurm_job_memory_limit": 4096,
    }


def test_alumet_gets_what_was_added_since_the_last_sample():
    now = {"cpu_seconds_total": 3.5, "cpu_user_seconds_total": 3.0, "memory_usage_bytes": 10}
    before = {"cpu_seconds_total": 3.0, "cpu_user_seconds_total": 2.75}
    assert told("alumet", now, before, seconds=2.0) == {
        'cpu_time_delta{kind="total"}': 500_000_000, 'cpu_percent{kind="total"}': 25.0,
        'cpu_time_delta{kind="user"}': 250_000_000, 'cpu_percent{kind="user"}': 12.5, "memory_usage": 10,
    }  # fmt: skip
    assert told("alumet", now) == {"memory_usage": 10}, "the first sample has nothing before it"


def test_jobs_exporter_gets_mebibytes_ticks_and_process_names():
    values = {"resident_bytes": 3 << 20, "cpu_user_seconds_total": 1.25, 'process_threads{exe="a.out"}': 4,
              "read_bytes_total": 1 << 19, "uses_scratch": 1.0}  # fmt: skip
    assert told("jobs", values) == {
        "jobs_rss": 3.0, "jobs_user_time": 125, 'jobs_thread_count{proc_name="a.out"}': 4, "jobs_read_mb": 0.5,
        "jobs_uses_scratch": 1,
    }  # fmt: skip


@pytest.mark.parametrize("case", cases("cpu_percent"))
def test_one_busy_core_is_a_hundred_percent(case):
    given_ = case["input"]
    assert percent(given_["delta_ns"], given_["interval_ns"]) == case["expected"]["seed_000_percent"]


@pytest.mark.parametrize("case", cases("counter_delta"))
def test_a_counter_says_what_it_grew_unless_it_began_anew(case):
    before, deltas = None, []
    for value in case["input"]["values"]:
        now = None if value == "reset" else value
        deltas.append(None if now is None else growth(before, now, case["input"]["max"]))
        before = now
    assert deltas == case["expected"]["deltas"]


def test_a_counter_that_fell_turned_over_only_where_its_end_is_known():
    assert growth(250, 4, largest=255) == 10
    assert growth(250, 4) is None


@pytest.mark.parametrize("case", cases("prom_name"))
def test_a_name_becomes_one_that_prometheus_takes(case):
    assert prometheus_name(case["input"]["name"]) == case["expected"]["sanitized"]


@given(st.text(max_size=20))
def test_every_text_becomes_a_name_of_the_same_length(text):
    name = prometheus_name(text)
    assert len(name) == len(text)
    assert re.fullmatch(r"([a-zA-Z_:][a-zA-Z0-9_:]*)?", name)


@pytest.mark.parametrize("case", cases("involved_jobs"))
def test_node_measurements_name_the_jobs_that_were_there(case):
    running = [job(str(number), {}) for number in case["input"]["running"]]
    of_a_job = "job_id" in case["input"]["measurement"].get("attributes", {})
    assert (None if of_a_job else batch(*running).involved_jobs) == case["expected"]["involved_jobs"]


def test_involved_jobs_are_numbers_in_order_and_cgroups_are_not_among_them():
    subjects = [job("10", {}), job("9", {}), job("s0123456789ABC", {}), job("system.slice", {}, scope="cgroup")]
    assert batch(*subjects).involved_jobs == [9, 10, "s0123456789ABC"]


def test_every_seed_name_has_the_type_and_unit_the_portal_expects():
    if not PORTAL.exists():
        pytest.skip("the portal's queries are not here")
    wanted = json.loads(PORTAL.read_text())["metrics"]
    ours = {name.name: name for family in names.all_families().values() for name in family.names.get("job", ())}
    named = [name for name in ours if name.startswith("slurm_job_")]
    assert len(named) == len([name for name in wanted if name.startswith("slurm_job_")])
    for name in named:
        assert ours[name].kind == wanted[name]["type"], name
        labels = set(wanted[name]["labels"]) - {"user", "account", "slurmjobid", "instance", "cluster"}
        assert "uuid" not in labels


@pytest.mark.parametrize("family", ["node", "redfish"])
def test_a_family_of_the_node_has_exactly_the_portals_names(family):
    if not PORTAL.exists():
        pytest.skip("the portal's queries are not here")
    asked = json.loads(PORTAL.read_text())["metrics"]
    wanted = {name: row for name, row in asked.items() if row["exporter"] == f"{family}_exporter"}
    ours = {name.name: name for name in names.all_families()[family].names["node"]}
    assert {name: ours[name].kind for name in ours} == {name: row["type"] for name, row in wanted.items()}
    for name, row in wanted.items():
        labels = {ours[name].rename.get(label, label) for label in catalogue()["node", ours[name].metric].labels}
        assert set(row["labels"]) - {"instance", "cluster"} <= labels - ours[name].drop, name


def test_power_has_the_name_of_redfish_only_when_redfish_measured_it():
    watts = {"redfish": 319.0, "ipmi": 300.0}
    values = {series("power_average_watts", meter=meter, chassis="1"): value for meter, value in watts.items()}
    page = pages(["redfish"], batch(node=values))
    assert lines(page) == ['redfish_chassis_power_average_consumed_watts{chassis="1"} 319.0']


def test_a_label_may_hold_anything_and_comes_back():
    [(output, _)] = naming("slurm").measurements("job", {series("user_threads", state='a"b\\c\nd}'): 1}, {}, 1)
    assert pairs(output.own) == [("state", 'a"b\\c\nd}')]


SITE = """
about = "the lab's own"
scopes = ["job"]
labels = { id = "job" }
[names."lab.memory%"]
of = "memory_usage_bytes"
times = 0.001
help = "Memory in kB."
"""


def test_a_site_adds_names_of_its_own(tmp_path):
    (tmp_path / "lab.toml").write_text(SITE)
    [family] = names.select_families(["lab"], tmp_path / "lab.toml")
    [name] = family.names["job"]
    assert (name.name, name.kind, name.times) == ("lab_memory_", MetricKind.GAUGE, 0.001)
    exposition = Exposition(Naming([family]))
    exposition.take(batch(job("7", {"memory_usage_bytes": 4096})))
    assert lines(exposition, "lab") == ['lab_memory_{id="7"} 4.096']


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("[names", "not TOML"),
        ("label = 1", "unknown key `label`"),
        ("labels = { id = 'number' }", "says `number`"),
        ("[names.x]\nof = 'nothing_bytes'", "which is not measured"),
        ("[names.x]\nof = 'cpus'\nform = 'rate'", "unknown form `rate`"),
        ("[names.x]\nof = 'cpus'\ntime = 2", "unknown key `time`"),
        ("scopes = ['host']", "has the scope `host`"),
        ("scopes = ['node']\n[names.x]\nof = 'cpus'", "which is not measured"),
    ],
)
def test_a_file_of_names_that_makes_no_sense_is_refused_with_a_reason(tmp_path, text, sentence):
    (tmp_path / "lab.toml").write_text(text)
    with pytest.raises(ConfigRefused, match=sentence):
        names.all_families(tmp_path / "lab.toml")


def test_an_unknown_family_is_refused_with_the_list(tmp_path):
    with pytest.raises(ConfigRefused, match="no family of names `slrum`") as refused:
        names.select_families(["slrum"])
    assert refused.value.hint == "There are oarlock, alumet, jobs, node, redfish, slurm."
    with pytest.raises(ConfigRefused, match="cannot be read"):
        names.all_families(tmp_path / "absent.toml")


@pytest.mark.skipif(not CASES.exists(), reason="the recorded cases of peers are not here")
def test_a_recorded_job_has_a_series_for_each_core_in_nanoseconds():
    [case] = [one.values[0] for one in cases("job_v1") if "slurm_job_core_usage_total" in one.values[0]["expected"]]
    expected = case["expected"]["slurm_job_core_usage_total"]
    values = {series("core_cpu_seconds_total", core=core): ns / 1e9 for core, ns in expected.items()}
    page = pages(["slurm"], batch(job("7", values)))
    assert lines(page, "slurm_job_core") == [
        f'slurm_job_core_usage_total{{core="{core}",{WHOSE}}} {ns}' for core, ns in expected.items()
    ]
