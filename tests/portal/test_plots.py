"""Which curves of a node are drawn together."""

from oarlock.measure.collect.series import CurveView, SeriesView
from oarlock.web.pages.parts.plots import OF_NODES, plots_of


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
