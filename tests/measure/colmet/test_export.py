import json

import h5py
import numpy as np
import pytest
import tables

from oarlock.cli.oarlock import main
from oarlock.measure.collect.collector import Collector
from oarlock.measure.collect.files.hdf5 import ArchivedJob
from oarlock.measure.collect.files.places import SamplePlaces
from oarlock.measure.collect.series import NoSamples
from oarlock.measure.colmet.export import export_jobs
from oarlock.measure.colmet.receive import ColmetTranslator, decode
from oarlock.model.errors import ConfigRefused
from oarlock.node.measure.wire import encode_sample
from oarlock.store.engine.opening import open_database
from oarlock.store.queries.job import agent_jobs
from oarlock.store.queries.job.agent_jobs import DescribedJob
from tests.measure.colmet import recorded

BEGIN = 1_700_000_000


def rapl(domain, socket="0", zone=None):
    return f'rapl_energy_joules_total{{zone="{zone or domain + socket}",domain="{domain}",socket="{socket}"}}'


def node_values(number):
    return {
        "load_1min": 0.25 + number,
        "meminfo_mem_total_bytes": 2048.0 * 1024,
        'cpu_seconds_total{mode="user"}': 1.5 * number,
        'cpu_seconds_total{mode="steal"}': 0.25,
        rapl("package"): 1000 + 2.5 * number,
        rapl("dram"): 10 + 0.5 * number,
        'rapl_energy_joules_total{zone="psys",domain="psys"}': 5.0,
        'temperature_celsius{chip="x86_pkg_temp",sensor="thermal_zone1"}': 41.4,
        'temperature_celsius{chip="coretemp/hwmon0",sensor="Core 0"}': 40.0,
        'infiniband_received_bytes_total{device="mlx5_0",port="1"}': 100.0,
        'infiniband_received_bytes_total{device="mlx5_1",port="1"}': 50.0,
        'power_watts{meter="ipmi"}': 300.0,
    }


def job_values(number):
    return {
        "cpu_seconds_total": 2.0 * number,
        "cpu_user_seconds_total": 1.5 * number,
        "read_bytes_total": 4096.0,
        "resident_bytes": 8192.0 * 1024,
        "perf_instructions_total": 1000.0 * (number + 1),
        "perf_task_clock_seconds_total": 0.5 * (number + 1),
    }


@pytest.fixture
def collector(tmp_path):
    made = Collector(tmp_path / "state" / "samples")
    made.places.root.parent.mkdir()
    made.start()
    yield made
    made.close()


def log_samples(collector, node="n1", jobs=(41302,), count=3, node_of=node_values, job_of=job_values):
    for number in range(count):
        at = BEGIN + 10.0 * number
        data = encode_sample(at, node_of(number), {job: job_of(number) for job in jobs})
        collector.take(node, data, set(jobs), at=at)


def test_a_job_becomes_tables_as_colmets_collector_writes_them(collector, tmp_path):
    log_samples(collector)
    files = export_jobs(collector.places, [41302], tmp_path / "out")
    assert files.hdf5 == tmp_path / "out" / f"colmet.{BEGIN}.hdf5"
    assert files.hdf5.stat().st_mode & 0o777 == 0o600
    with h5py.File(files.hdf5) as file:
        assert set(file["job_41302"]) == {"taskstats_default", "jobprocstats_default", "perfhwstats_default"}
        task = file["job_41302/taskstats_default"]
        assert task.dtype.names[:4] == ("timestamp", "hostname", "job_id", "metric_backend")
        assert (task.dtype["hostname"], task.dtype["cpu_count"]) == (np.dtype("S255"), np.dtype("<i8"))
        assert task["timestamp"].tolist() == [BEGIN, BEGIN + 10, BEGIN + 20]
        assert set(task["hostname"]) == {b"n1"}
        assert set(task["metric_backend"]) == {b"taskstats_default"}
        assert task["cpu_run_virtual_total"].tolist() == [0, 2_000_000_000, 4_000_000_000]
        assert task["ac_utime"].tolist() == [0, 1_500_000, 3_000_000]
        assert set(task["nvcsw"]) == {-1}
        assert set(file["job_41302/jobprocstats_default"]["VmRSS"]) == {8192}
        node = file["job_0/procstats_default"]
        assert node["loadavg_1min"].tolist() == [0.25, 1.25, 2.25]
        assert node["stat_cpu_user"].tolist() == [0, 150, 300]
        assert set(node["stat_cpu_guest"]) == {25}  # Colmet's column of that name holds the stolen time
        assert set(node["involved_jobs"]) == {b"[41302]"}
        assert set(file["job_0/infinibandstats_default"]["portRcvData"]) == {150}
        assert set(file["job_0/ipmipowerstats_default"]["average_power_consumption"]) == {300}


def test_pytables_opens_the_tables_as_its_own(collector, tmp_path):
    log_samples(collector)
    files = export_jobs(collector.places, [41302], tmp_path / "out")
    with tables.open_file(str(files.hdf5)) as file:
        table = file.get_node("/job_41302/taskstats_default")
        assert isinstance(table, tables.Table)
        assert (table.title, table.attrs.backend_version) == ("Metrics for the Job 41302", 2)
        assert [row["timestamp"] for row in table.where("cpu_run_virtual_total > 3000000000")] == [BEGIN + 20]


def test_events_are_what_was_added_and_the_mapping_names_them(collector, tmp_path):
    log_samples(collector)
    files = export_jobs(collector.places, [41302], tmp_path / "out")
    with h5py.File(files.hdf5) as file:
        rows = file["job_41302/perfhwstats_default"]
        assert rows["counter_1"].tolist() == [1000, 1000, 1000]
        assert rows["counter_2"].tolist() == [500_000_000] * 3
        assert set(rows["counter_3"]) == {-1}
    mapping = tmp_path / "out" / f"perfhw_mapping.{BEGIN}.0.csv"
    assert mapping in files.mappings
    assert mapping.read_text() == (
        "counter1,instructions\ncounter2,task_clock\ncounter3,no_counter\ncounter4,no_counter\ncounter5,no_counter\n"
    )


def test_energy_says_what_the_processor_lacks_and_what_there_is_not(collector, tmp_path):
    log_samples(collector)
    files = export_jobs(collector.places, [41302], tmp_path / "out")
    with h5py.File(files.hdf5) as file:
        rows = file["job_0/RAPLstats_default"]
        assert rows["timestamp"].tolist() == [BEGIN + 10, BEGIN + 20]
        assert rows["counter_1"].tolist() == [2_500_000, 2_500_000]
        assert rows["counter_5"].tolist() == [500_000, 500_000]
        assert [set(rows[f"counter_{number}"]) for number in (2, 3, 4, 6, 7, 24)] == [{-1}, {0}, {0}, {-1}, {-1}, {-1}]
    lines = (tmp_path / "out" / f"RAPL_mapping.{BEGIN}.0.csv").read_text().splitlines()
    assert lines[:7] == [
        "counter_1,energy_microjoule,package-0,zone_package",
        "counter_2,no_counter,,",
        "counter_3,counter_not_supported_by_hardware,,",
        "counter_4,counter_not_supported_by_hardware,,",
        "counter_5,energy_microjoule,package-0,zone_dram",
        "counter_6,no_counter,,",
        "counter_7,no_counter,,",
    ]
    assert len(lines) == 24
    temperatures = (tmp_path / "out" / f"temperature_mapping.{BEGIN}.0.csv").read_text().splitlines()
    assert temperatures == ["counter_1, no counter", "counter_2, x86_pkg_temp_1",
                            *(f"counter_{number}, no counter" for number in range(3, 7))]  # fmt: skip
    assert files.left_out == {
        "RAPLstats_default": ["psys of the machine"],
        "temperaturestats_default": ["coretemp/hwmon0 Core 0"],
    }


def test_a_counter_that_began_again_is_never_negative(collector, tmp_path):
    counted = [1000.0, 5000.0, 200.0]
    log_samples(collector, node_of=lambda number: {rapl("package"): counted[number]},
                job_of=lambda number: {"perf_instructions_total": counted[number]})  # fmt: skip
    files = export_jobs(collector.places, [41302], tmp_path / "out")
    with h5py.File(files.hdf5) as file:
        assert file["job_41302/perfhwstats_default"]["counter_1"].tolist() == [1000, 4000, 200]
        assert file["job_0/RAPLstats_default"]["counter_1"].tolist() == [4_000_000_000, 0]


def test_nodes_that_differ_have_mappings_of_their_own(collector, tmp_path):
    log_samples(collector, "n1", node_of=lambda _: {'temperature_celsius{chip="a",sensor="thermal_zone0"}': 20.0})
    log_samples(collector, "n2", node_of=lambda _: {'temperature_celsius{chip="b",sensor="thermal_zone0"}': 30.0})
    export_jobs(collector.places, [41302], tmp_path / "out")
    first_lines = {
        node: (tmp_path / "out" / node / f"temperature_mapping.{BEGIN}.0.csv").read_text().splitlines()[0]
        for node in ("n1", "n2")
    }
    assert first_lines == {"n1": "counter_1, a_0", "n2": "counter_1, b_0"}


def test_a_file_that_is_kept_is_exported_as_a_log_is(collector, tmp_path):
    log_samples(collector, count=20)
    export_jobs(collector.places, [41302], tmp_path / "live")
    for _ in range(2):
        collector.archive_ended(lambda jobs: {job: ArchivedJob(job) for job in jobs})
    assert collector.places.kept(41302)
    export_jobs(collector.places, [41302], tmp_path / "kept")
    with (
        h5py.File(tmp_path / "live" / f"colmet.{BEGIN}.hdf5") as live,
        h5py.File(tmp_path / "kept" / f"colmet.{BEGIN}.hdf5") as kept,
    ):
        for name in ("taskstats", "jobprocstats", "perfhwstats"):
            assert np.array_equal(live[f"job_41302/{name}_default"][...], kept[f"job_41302/{name}_default"][...])


def test_what_colmet_sent_is_written_as_it_was_sent(collector, tmp_path):
    translator = ColmetTranslator()
    for _ in range(2):
        [sample] = translator.translate(decode(recorded.RECORDS, BEGIN + 1.0), BEGIN + 1.0)
        collector.take("dahu-17", encode_sample(sample.at, sample.node, sample.jobs), {4071}, at=BEGIN + 1.0)
    files = export_jobs(collector.places, [4071], tmp_path / "out")
    sent = {record.backend: record.values for record in decode(recorded.RECORDS, BEGIN + 1.0).records}
    with h5py.File(files.hdf5) as file:
        for backend, place in (("taskstats", "job_4071"), ("procstats", "job_0"), ("ipmipowerstats", "job_0")):
            row = file[place][f"{backend}_default"][0]
            assert {name: row[name] for name in sent[backend]} == sent[backend]
    mapping = (tmp_path / "out" / f"perfhw_mapping.{BEGIN}.0.csv").read_text()
    assert mapping.startswith("counter1,unknown\ncounter2,unknown\ncounter3,no_counter\n")


def test_more_than_five_events_are_named_and_nothing_is_written_twice(collector, tmp_path, capsys):
    events = (
        "instructions",
        "cpu_cycles",
        "cache_misses",
        "page_faults",
        "context_switches",
        "dummy",
        "cgroup_switches",
    )
    log_samples(collector, node_of=lambda _: {}, job_of=lambda _: {f"perf_{event}_total": 1.0 for event in events})
    state, folder = str(collector.places.root.parent), str(tmp_path / "out")
    arguments = ["archive", "export", "--colmet", "41302", "41302", "-o", folder, "--state", state]
    assert main(arguments) == 0
    shown = capsys.readouterr().out
    assert f"colmet.{BEGIN}.hdf5: 3 rows in 1 tables." in shown
    assert "Left out, since perfhwstats_default has no more columns: cgroup_switches, dummy." in shown
    assert main(arguments) == 2
    assert "is there already." in capsys.readouterr().err
    assert main([*arguments[:6], str(tmp_path / "other"), "--state", state, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == {"perfhwstats_default": ["cgroup_switches", "dummy"]}


def test_jobs_of_another_cluster_are_written_by_their_numbers_there(collector, tmp_path, capsys):
    state = collector.places.root.parent
    with open_database(state / "oarlock.db", create=True) as database:
        described = [DescribedJob("4071", "oar"), DescribedJob("4080", "oar")]
        numbers = database.write(lambda tx: agent_jobs.register(tx, "dahu", described, node="n1", now=BEGIN))
    log_samples(collector, jobs=tuple(numbers.values()))
    arguments = ["archive", "export", "-o", str(tmp_path / "out"), "--state", str(state), "--cluster"]
    assert main([*arguments, "dahu", "--colmet", "4071"]) == 0
    with h5py.File(tmp_path / "out" / f"colmet.{BEGIN}.hdf5") as file:
        assert set(file) == {"job_0", "job_4071"}
        assert set(file["job_4071/taskstats_default"]["job_id"]) == {4071}
        assert set(file["job_0/procstats_default"]["involved_jobs"]) == {b"[4071, 4080]"}
    assert main([*arguments, "luke", "--colmet", "4071"]) == 2
    assert "No node reported a job 4071 of the cluster luke." in capsys.readouterr().err


def test_a_job_without_measurements_is_refused_before_anything_is_written(collector, tmp_path):
    log_samples(collector)
    with pytest.raises(NoSamples, match="no curves of job 7"):
        export_jobs(collector.places, [41302, 7], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigRefused, match="cannot be made: Not a directory"):
        export_jobs(SamplePlaces(collector.places.root), [41302], tmp_path / "file" / "out")
