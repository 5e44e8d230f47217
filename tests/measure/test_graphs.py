"""Graphs of a recorded job: counters become rates, scales are round, and every number of nodes can be drawn."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from oarlock.measure import graphs, pictures


def _recorded(**curves):
    listed = [
        {"node": node, "metric": metric, "points": points}
        for metric, by_node in curves.items()
        for node, points in by_node.items()
    ]
    return {"job_id": 7, "name": "", "state": "Running", "start": 100, "curves": listed}


def test_a_counter_is_drawn_as_its_rate_and_a_gauge_as_it_is():
    made = graphs.read_graphs(
        _recorded(
            cpu_seconds_total={"n1": [(100, 0.0), (110, 20.0), (120, 50.0)]},
            cpus={"n1": [(100, 4.0)]},
            tasks={"n1": [(100, 3), (120, 5)]},
        )
    )
    cpu, tasks = made.graphs
    assert (cpu.file, cpu.curves, cpu.limit) == ("cpu", {"n1": [(10.0, 2.0), (20.0, 3.0)]}, 4.0)
    assert (tasks.file, tasks.curves) == ("tasks", {"n1": [(0.0, 3), (20.0, 5)]})


def test_a_counter_that_began_again_says_nothing_about_that_time():
    made = graphs.read_graphs(_recorded(read_bytes_total={"n1": [(0, 90.0), (10, 10.0), (20, 30.0)]}))
    assert made.graphs[0].curves == {"n1": [(20.0, 2.0)]}


def test_values_of_the_sites_sensor_have_graphs_of_their_own():
    made = graphs.read_graphs(_recorded(site_power_watts={"n1": [(0, 200.0)]}, site_sent_bytes={"n1": [(0, 9.0)]}))
    assert [(graph.file, graph.title, graph.unit) for graph in made.graphs] == [
        ("site_power_watts", "power watts", ""), ("site_sent_bytes", "sent bytes", "B"),
    ]  # fmt: skip


@given(top=st.floats(0, 1e18), unit=st.sampled_from(["", "B", "B/s"]))
def test_a_scale_is_even_reaches_the_top_and_has_few_lines(top, unit):
    marks = graphs.ticks(top, unit)
    assert marks[0] == 0
    assert marks[-1] >= top * (1 - 1e-9)
    assert 2 <= len(marks) <= 7
    assert all(graphs.shown(mark, unit) for mark in marks)


@given(seconds=st.floats(0, 1e8))
def test_a_time_axis_begins_at_0_and_has_few_lines(seconds):
    marks = graphs.time_ticks(seconds)
    assert (marks[0], marks[-1] <= seconds, len(marks) <= 12) == (0, True, True)


@pytest.mark.parametrize("nodes", [1, 3, 9, 40])
def test_any_number_of_nodes_can_be_drawn_in_the_order_of_their_numbers(nodes):
    names = [f"node{number}" for number in range(1, nodes + 1)]
    cpu = {name: [(0, 0.0), (10, 5.0), (20, 40.0)] for name in names}
    memory = {name: [(0, 1e9)] for name in names}
    made = graphs.read_graphs(_recorded(cpu_seconds_total=cpu, memory_usage_bytes=memory))
    assert list(made.graphs[0].curves) == names
    files = dict(pictures.draw(made))
    assert list(files) == ["cpu.png", "memory.png", "job.gif"]
    with Image.open(io.BytesIO(files["job.gif"])) as animation:
        assert animation.size == (900, 118 + min(nodes, 24) * 26 + (24 if nodes > 24 else 0))
