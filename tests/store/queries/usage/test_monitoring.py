"""What was recorded of jobs, on both engines."""

from oarlock.job.monitoring import sensed_values
from oarlock.store.queries.usage import monitoring
from oarlock.store.queries.usage.monitoring import MonitoredCurve, MonitoredValue, RecordedExtent
from tests.store.cluster import add_job


def test_a_value_is_recorded_once_and_curves_come_back_in_order(tx):
    job = add_job(tx).id
    values = [MonitoredValue(job, node, at, "tasks", float(at)) for node in ("b", "a") for at in (30, 10, 20)]
    assert monitoring.add(tx, values) == 6
    assert monitoring.add(tx, [*values[:2], MonitoredValue(job, "a", 40, "tasks", 1.5)]) == 1
    assert monitoring.curves(tx, job, most=1000) == [
        MonitoredCurve("a", "tasks", [(10, 10.0), (20, 20.0), (30, 30.0), (40, 1.5)]),
        MonitoredCurve("b", "tasks", [(10, 10.0), (20, 20.0), (30, 30.0)]),
    ]
    assert monitoring.extent(tx, job) == RecordedExtent(values=7, nodes=2, first=10, last=40, curves=2)
    assert monitoring.extent(tx, job + 1) == RecordedExtent(0, 0, 0, 0, 0)
    assert monitoring.curves(tx, job + 1, most=1000) == []


def test_a_long_recording_is_thinned_and_keeps_its_peaks(tx):
    job = add_job(tx).id
    values = [MonitoredValue(job, "n1", at, "tasks", 99.0 if at == 77 else 1.0) for at in range(1000)]
    monitoring.add(tx, values)
    [curve] = monitoring.curves(tx, job, most=10)
    assert len(curve.points) == 50
    assert [value for _, value in curve.points if value > 1] == [99.0]
    assert curve.points[-1] == (999, 1.0)


def test_only_lines_with_a_name_and_a_number_are_values_of_a_sensor():
    text = "power 1.5\n\nx=2\n y \t 3e2 \n1bad 4\nnone inf\nnan nan\nthree words here\n" + "z 1\n" * 200
    values = [(value.metric, value.value) for value in sensed_values(5, "n1", 9.7, text)]
    assert values[:3] == [("site_power", 1.5), ("site_x", 2.0), ("site_y", 300.0)]
    assert {name for name, _ in values} == {"site_power", "site_x", "site_y", "site_z"}
    assert len(values) < 100
