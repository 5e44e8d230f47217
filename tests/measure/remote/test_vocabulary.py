"""Names of other exporters, as we ask an engine for them."""

import json

import pytest

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
    ],
)
def test_a_metric_is_asked_for_in_the_words_of_the_exporter(family, metric, expression):
    [(series, own)] = vocabulary(family).find("job", metric)
    assert series.expression(["a", *own]) == expression


def test_every_family_has_names_and_the_label_of_a_job():
    assert {family: bool(_names(family)) for family in FOREIGN_NAMES} == dict.fromkeys(FOREIGN_NAMES, True)
    labels = {family: vocabulary(family).job_label for family in ("oarlock", "slurm", "jobs", "lustre")}
    assert labels == {"oarlock": "job_id", "slurm": "slurmjobid", "jobs": "slurm_job", "lustre": "jobid"}
