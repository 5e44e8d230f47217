import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

from oarlock.cli.oarlock import main
from tests.measure.real import free_port
from tests.monitoring import ROOT
from tests.waiting import wait_until

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


@pytest.fixture
def agent(tmp_path):
    """A whole agent with every output, and what it needs to be talked to."""
    port, control = free_port(), str(tmp_path / "agent.sock")
    command = [sys.executable, "-m", "oarlock", "agent", "--period", "0.2", "--listen", f"127.0.0.1:{port}",
               "--control", control, "--json", str(tmp_path / "out.jsonl"), "--csv", str(tmp_path / "out.csv"),
               "--layout", "torque"]  # fmt: skip
    program = subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}/metrics"
    try:
        wait_until(lambda: fetched(url) is not None, "the agent's page", 30)
        yield program, url, control
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stderr.close()


def fetched(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.read().decode()
    except OSError:
        return None


def test_an_agent_serves_writes_is_changed_and_ends_when_told(agent, tmp_path, capsys):
    program, url, control = agent
    assert "oarlock_node_jobs " in fetched(url)
    assert main(["agent", "show", "--control", control]) == 0
    assert json.loads(capsys.readouterr().out)["period"] == 0.2
    assert main(["agent", "set", "--period", "0.3", "--disable", "machine", "--control", control]) == 0
    now = json.loads(capsys.readouterr().out)
    assert (now["period"], "machine" in now["sources"]) == (0.3, False)
    wait_until(lambda: "oarlock_agent_period_seconds 0.3" in fetched(url), "the new period")
    assert main(["agent", "set", "--period", "0.01", "--control", control]) == 2
    assert "A period of 0.01 s cannot be kept." in capsys.readouterr().err
    program.terminate()
    assert program.wait(20) == 0
    last = json.loads((tmp_path / "out.jsonl").read_text().splitlines()[-1])
    assert last["involved_jobs"] == []
    assert (tmp_path / "out.csv").read_text().startswith("metric;timestamp;value;")
    assert not (tmp_path / "agent.sock").exists()


def test_an_agent_that_cannot_start_says_why(capsys, tmp_path):
    assert main(["agent", "--layout", "pbs", "--control", "none"]) == 2
    assert "There is no layout `pbs`." in capsys.readouterr().err
    assert main(["agent", "--listen", "0.0.0.0:0", "--control", "none"]) == 2
    assert "would show users' names" in capsys.readouterr().err
    assert main(["agent", "--look-up", "pbs", "--control", "none"]) == 2
    assert "There is no look-up `pbs`." in capsys.readouterr().err
    assert main(["agent", "--json", str(tmp_path / "no" / "out"), "--control", "none"]) == 2
    assert "cannot be written: No such file" in capsys.readouterr().err
    assert main(["agent", "show", "--control", str(tmp_path / "none.sock")]) == 2
    assert "No agent answers" in capsys.readouterr().err


def test_the_options_of_colmet_are_options_here(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["agent", "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for option in ("--enable-perfhw", "--perfhw-list", "--enable-RAPL", "--enable-temperature"):
        assert option in shown


PLAIN = """
import logging, os, sys
from oarlock.measure import options
from oarlock.measure.agent import started
asked = options.make_options({"enable": "perf", "listen": "none", "control": "none", "layout": "oarlock"})
logging.basicConfig(stream=sys.stdout, format="%(message)s", level="WARNING")
os.setgid(65534)
os.setuid(65534)
with started(asked) as agent:
    agent.sample()
    print(agent.page.series > 50)
"""


def test_an_agent_without_privileges_says_what_it_cannot_measure(tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give up privileges here")
    ran = subprocess.run([sys.executable, "-c", PLAIN], env=ENVIRONMENT, capture_output=True, text=True, timeout=60)
    told = ran.stdout.splitlines()
    assert told[-1] == "True", ran.stderr
    assert told[0].startswith("I/O, open files and executables of other users' processes cannot be read: ")


def test_an_agent_logs_the_details_of_a_line_too():
    command = [sys.executable, "-m", "oarlock", "agent", "--listen", "127.0.0.1:0", "--control", "none"]
    with subprocess.Popen(command, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True) as agent:
        serving = next(line for line in agent.stderr if "serving /metrics" in line)
        agent.terminate()
    assert re.fullmatch(r"oarlock agent: serving /metrics address=127\.0\.0\.1:[0-9]+\n", serving)
