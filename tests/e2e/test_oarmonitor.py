"""oarmonitor and oarmonitor_graph_gen: from the samples of a job that runs to pictures of it."""

import io
import os
import pwd
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from PIL import Image

from oarlock.cli.commands import module_name
from oarlock.cli.jobs import oarmonitor, oarmonitor_graph_gen
from oarlock.client import RequestRefused
from oarlock.model.job import JobState
from oarlock.store.queries.usage import monitoring
from tests.bed import needs_root, script, site_directory
from tests.e2e.instance import SOURCE, Instance, instance

pytestmark = needs_root

_SENSOR = """
echo "power_watts 200.5"; echo "temperature_celsius=41"; echo "this is not a value"; echo "bad nan"
test "$2" = "{user}_$1" && echo "named 1"
exit {code}
"""


@pytest.fixture
def site(workspace, two_users) -> Iterator[Instance]:
    """An instance that measures each second, with a sensor of the site."""
    with site_directory() as here:
        sensor = script(here / "sensor", _SENSOR.format(user=two_users[0], code=0))
        more = {"SAMPLE_PERIOD": 1, "OARMONITOR_SENSOR_FILE": sensor}
        with instance(workspace, two_users[0], f"o{os.getpid()}n", nodes=2, more=more) as made:
            yield made


def _start(site: Instance, command: str, *words: str, user: str = "root", cwd: Path | None = None):
    code = f"import sys; from {module_name(command)} import main; sys.exit(main())"
    server = str(site.state / "server.sock")
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE), "OARLOCK_SERVER": server, "TZ": "UTC"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *words],
        env=environment, cwd=cwd, user=pwd.getpwnam(user).pw_uid, text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _run(site: Instance, command: str, *words: str, **how):
    process = _start(site, command, *words, **how)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def _metrics(site: Instance, job: int) -> dict[str, set[str]]:
    """Give the metrics that were recorded more than once, by node."""
    with site.database.read() as tx:
        metrics: dict[str, set[str]] = {}
        for curve in monitoring.curves(tx, job, most=10_000):
            if len(curve.points) > 1:
                metrics.setdefault(curve.node, set()).add(curve.metric)
        return metrics


_WANTED = {
    "cpu_seconds_total",
    "memory_usage_bytes",
    "tasks",
    "site_power_watts",
    "site_temperature_celsius",
    "site_named",
}


@pytest.mark.manual(84, 85, 86, 176)
def test_a_job_is_recorded_also_over_a_restart_and_its_owner_draws_it(site, two_users):
    owner, other = two_users
    job, number = 1, "1"
    assert site.submit("while :; do :; done", "/network_address=2,walltime=1") == job
    site.serve()
    site.until(lambda: site.job(job).state is JobState.RUNNING)
    first = _start(site, "oarmonitor", "-j", number, "-f", "1")
    site.until(lambda: _is_recorded(site, job))
    site.stop()
    before = _count(site, job)
    site.serve()
    site.until(lambda: _count(site, job) > before)
    first.send_signal(signal.SIGINT)
    out, err = first.communicate(timeout=60)
    begun, summary = out.splitlines()
    assert (first.returncode, err, begun) == (0, "", "Recording job 1 every 1 s; Ctrl-C ends it.")
    assert summary == f"{_count(site, job)} values of 2 nodes were recorded."

    second = _start(site, "oarmonitor", "-j", number, "-f", "1")
    refused = f"oarmonitor_graph_gen: Job {job} belongs to {owner}, not to {other}.\n"
    assert _run(site, "oarmonitor_graph_gen", "-j", number, user=other, cwd=site.home)[2].startswith(refused)
    folder = site.home / "OAR.1.monitoring"
    assert not folder.exists()
    site.delete(job)
    out, err = second.communicate(timeout=60)
    assert (second.returncode, err, out.splitlines()[-1].startswith("Job 1 is ")) == (0, "", True)
    drawn = _run(site, "oarmonitor_graph_gen", "-j", number, user=owner, cwd=site.home)
    assert drawn == (0, f"{len(list(folder.iterdir()))} pictures are in OAR.1.monitoring.\n", "")
    _check_pictures(folder)
    over = "oarmonitor: Job 1 is over (Error): nothing more can be recorded.\n"
    hint = "  oarmonitor_graph_gen -j 1 draws what was recorded while it ran.\n"
    assert _run(site, "oarmonitor", "-j", number, "-f", "10") == (1, "", over + hint)


def _is_recorded(site: Instance, job: int) -> bool:
    metrics = _metrics(site, job)
    return len(metrics) == 2 and all(names >= _WANTED for names in metrics.values())


def _count(site: Instance, job: int) -> int:
    with site.database.read() as tx:
        return monitoring.extent(tx, job).values


def _check_pictures(folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert {"cpu.png", "memory.png", "tasks.png", "site_power_watts.png", "job.gif"} <= names
    for path in folder.glob("*.png"):
        with Image.open(path) as picture:
            assert (picture.format, picture.size) == ("PNG", (900, 420))
            colors = picture.convert("RGB").getcolors(1 << 20)
            assert colors is not None
            assert len(colors) > 20, f"{path.name} is empty"
    with Image.open(io.BytesIO((folder / "job.gif").read_bytes())) as animation:
        assert (animation.format, animation.n_frames > 1) == ("GIF", True)


def test_bad_input_is_refused_with_a_sentence_and_nothing_is_written(site, two_users, monkeypatch, capfd):
    monkeypatch.setenv("OARLOCK_SERVER", str(site.state / "server.sock"))
    monkeypatch.chdir(site.home)
    mains = {"oarmonitor": oarmonitor.main, "oarmonitor_graph_gen": oarmonitor_graph_gen.main}

    def run(command, *words):
        monkeypatch.setattr(sys, "argv", [command, *words])
        code = mains[command]()
        printed = capfd.readouterr()
        return code, printed.out, printed.err.splitlines()[0]

    waiting = site.submit("sleep 600", "/network_address=1,walltime=1", state=JobState.HOLD)
    site.serve()
    cases = {
        ("oarmonitor",): "oarmonitor takes a job and a number of seconds.",
        ("oarmonitor", "-j", "1"): "oarmonitor takes a job and a number of seconds.",
        ("oarmonitor", "-j", "1", "-f", "soon"): "`soon` is not a number of seconds from 1 to 86400.",
        ("oarmonitor", "-j", "1", "-f", "0"): "`0` is not a number of seconds from 1 to 86400.",
        ("oarmonitor", "-j", "1", "-f", "-5"): "`-5` is not a number of seconds from 1 to 86400.",
        ("oarmonitor", "-j", "1", "-f", ""): "`` is not a number of seconds from 1 to 86400.",
        ("oarmonitor", "-j", "one", "-f", "1"): "`one` is not a job number.",
        ("oarmonitor", "-j", "99999", "-f", "1"): "There is no job 99999.",
        ("oarmonitor", "-j", str(waiting), "-f", "1"): f"Job {waiting} is Hold: it does not run yet.",
        ("oarmonitor_graph_gen",): "oarmonitor_graph_gen takes a job.",
        ("oarmonitor_graph_gen", "-j", "99999"): "There is no job 99999.",
        ("oarmonitor_graph_gen", "-j", str(waiting)): f"Nothing was recorded of job {waiting}.",
    }
    for (command, *words), says in cases.items():
        assert run(command, *words) == (1, "", f"{command}: {says}")
    (site.home / f"OAR.{waiting}.monitoring").symlink_to("/etc")
    with pytest.raises(RequestRefused, match="It is a link"):
        oarmonitor_graph_gen._write(f"OAR.{waiting}.monitoring", {"cpu.png": b"x"})
    code, _, err = _run(site, "oarmonitor", "-j", str(waiting), "-f", "1", user=two_users[0])
    assert (code, err.splitlines()[0]) == (
        1,
        f"oarmonitor: Only administrators may do this; {two_users[0]} is not one.",
    )
    assert [path.name for path in site.home.iterdir()] == [f"OAR.{waiting}.monitoring"]
    site.stop()
    down = f"No server answers at {site.state}/server.sock (No such file or directory); nothing was changed."
    assert run("oarmonitor", "-j", "1", "-f", "1") == (2, "", f"oarmonitor: {down}")
    assert run("oarmonitor_graph_gen", "-j", "1") == (2, "", f"oarmonitor_graph_gen: {down}")


def test_without_pillow_the_way_to_it_is_told(monkeypatch, capfd):
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setattr(sys, "argv", ["oarmonitor_graph_gen", "-j", "1"])
    assert oarmonitor_graph_gen.main() == 1
    assert capfd.readouterr().err == (
        "oarmonitor_graph_gen: Pictures are drawn by Pillow, which is not installed here.\n"
        "  pip install 'oarlock[graphs]'\n"
    )
