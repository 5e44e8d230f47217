"""Which curves of a node are drawn together."""

from oarlock.measure.collect.series import CurveView, SeriesView
from oarlock.web.pages.parts.plots import OF_JOBS, OF_NODES, plots_of


def _curve(metric, label, rate):
    points = [(float(at), rate, rate, rate) for at in range(0, 50, 10)]
    return CurveView(metric, f"{metric}{{{label}}}", "n1", "rate", "bytes/s", points)


def test_disks_and_networks_of_a_node_have_a_line_for_each_device():
    mib = float(1 << 20)
    series = SeriesView(
        node="n1", since=0, until=50,
        series=[
            _curve("disk_read_bytes_total", 'device="sda"', 2 * mib),
            _curve("disk_written_bytes_total", 'device="sda"', mib),
            _curve("network_received_bytes_total", 'interface="ib0"', 3 * mib),
        ],
    )  # fmt: skip
    plots = {plot.id: {line.name: line.values[0] for line in plot.lines} for plot in plots_of(OF_NODES, series)}
    assert plots == {"disk": {"read sda": 2.0, "written sda": 1.0}, "network": {"received ib0": 3.0}}


def test_a_plot_of_many_nodes_together_shows_what_all_of_them_have():
    points = [(float(at), 1.0, 2.0, 5.0) for at in range(0, 30, 10)]
    curves = [
        CurveView(metric, metric, "1000 nodes", "gauge", "", points)
        for metric in ("cpu_seconds_total", "gpu_utilization_ratio")
    ]
    series = SeriesView(since=0.0, until=20.0, series=curves, joined_nodes=1000)
    plots = {plot.id: plot.lines[0].values for plot in plots_of(OF_JOBS, series)}
    assert plots == {"cpu": [2000.0] * 3, "gpu": [200.0] * 3}  # cores of all, and per cent of one GPU
