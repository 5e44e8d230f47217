import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest
import zmq

from oarlock.cli.oarlock import main
from oarlock.measure import options
from oarlock.measure.colmet.control import ColmetControl, parse_control
from oarlock.measure.colmet.messages import UnreadableMessage
from oarlock.model.errors import ConfigRefused
from tests.measure.real import free_port
from tests.monitoring import ROOT
from tests.waiting import wait_until

pack = msgspec.msgpack.encode
# {"perfhw_metrics": "cache_ll,emulation_faults", "sample_period": "1.5"}, as `configure_colmet.py` sends it.
CONFIGURE = b"\x82\xaeperfhw_metrics\xb9cache_ll,emulation_faults\xadsample_period\xa31.5"


@pytest.fixture
def push():
    """Send to an address, as `configure_colmet.py` does."""
    context, sockets = zmq.Context(), []

    def send(address, *messages, keys=None):
        socket = context.socket(zmq.PUSH)
        sockets.append(socket)
        socket.linger = 0
        if keys:
            socket.curve_publickey, socket.curve_secretkey, socket.curve_serverkey = keys
        socket.connect(address)
        for message in messages:
            socket.send(message)

    yield send
    for socket in sockets:
        socket.close()
    context.term()


def test_a_message_of_configure_colmet_is_a_change_of_the_agent():
    change = parse_control(CONFIGURE)
    assert change == {"period": "1.5", "perf_events": ["cache_ll", "emulation_faults"], "enable": ["perf"]}
    changed = options.make_options(change)
    assert (changed.period, changed.perf_events) == (1.5, ("cache_ll", "emulation_faults"))
    assert "perf" in changed.sources


@pytest.mark.parametrize(
    ("sent", "change"),
    [
        ({"sample_period": "5"}, {"period": "5"}),
        ({"perfhw_metrics": ""}, {"disable": ["perf"]}),
        ({"metrics": "instructions,cpu_cycles:-1:-1", "sample_period": "5"},
         {"period": "5", "perf_events": ["instructions", "cpu_cycles"], "enable": ["perf"]}),
        ({"metrics": "total_rss:-1,nr_throttled"}, {"disable": ["perf"], "enable": ["memory", "cpu"]}),
        ({"metrics": "cache,dummy"}, {"perf_events": ["dummy"], "enable": ["perf", "memory"]}),
    ],
)  # fmt: skip
def test_messages_of_both_kinds_are_understood(sent, change):
    assert parse_control(pack(sent)) == change
    options.make_options(change)


@pytest.mark.parametrize(
    ("sent", "why"),
    [
        (b"", "not a map of texts"),
        (b"\xc1", "not a map of texts"),
        (pack({"sample_period": 5}), "not a map of texts"),
        (pack(["a"]), "not a map of texts"),
        (b"\x81\xa1a\xa1\xff", "not a map of texts"),
        (b"\x81" * 9000, "not a map of texts"),
        (pack({}), "it says nothing"),
        (pack({"listen": "0.0.0.0:1"}), "it says 'listen'"),
        (pack({"metrics": "cache:5"}), "a period or a job of its own"),
        (pack({"metrics": "cache:-1:4071"}), "a period or a job of its own"),
        (pack({"metrics": "moon"}), "'moon' is not a metric of colmet-rs"),
        (pack({"metrics": "cache:-1:-1:1"}), "is not a metric of colmet-rs"),
    ],
)
def test_a_control_message_that_cannot_be_followed_is_refused(sent, why):
    with pytest.raises(UnreadableMessage, match=why):
        parse_control(sent)


def test_a_refused_message_is_logged_and_the_next_one_is_applied(push, caplog):
    applied = []
    control = ColmetControl("127.0.0.1:0", None, lambda change: applied.append(options.make_options(change)))
    try:
        push(control.address, b"nonsense", pack({"perfhw_metrics": "moon"}), CONFIGURE)
        wait_until(lambda: applied, "the change")
    finally:
        control.close()
    assert applied[0].period == 1.5
    refusals = [record.why for record in caplog.records if record.getMessage() == "a control message was refused"]
    assert len(refusals) == 2
    assert refusals[1] == "There is no event `moon`."


def test_without_keys_only_this_machine_may_be_listened_to(tmp_path):
    for address in ("tcp://0.0.0.0:5557", "*:5557", "10.0.0.1:5557", "[::]:5557", "tcp://example.org:5557"):
        with pytest.raises(ConfigRefused, match="everybody on the network could change the agent"):
            ColmetControl(address, None, print)
    assert main(["agent", "--control-zmq", "0.0.0.0:5557", "--control", "none", "--listen", "none"]) == 2


def test_with_keys_only_those_who_have_one_are_followed(push, tmp_path):
    (public, secret), known, stranger = (zmq.curve_keypair() for _ in range(3))
    file = tmp_path / "keys.toml"
    file.touch(mode=0o600)
    file.write_text(f"secret = '{secret.decode()}'\n[senders]\nada = '{known[0].decode()}'\n")
    applied = []
    control = ColmetControl("0.0.0.0:0", file, applied.append)
    address = control.address.replace("0.0.0.0", "127.0.0.1")
    try:
        push(address, pack({"sample_period": "7"}))
        push(address, pack({"sample_period": "8"}), keys=(*stranger, public))
        push(address, CONFIGURE, keys=(*known, public))
        wait_until(lambda: applied, "the change")
        assert [change["period"] for change in applied] == ["1.5"]
    finally:
        control.close()


def test_an_agent_follows_configure_colmet_until_it_is_told_otherwise(push, tmp_path, capsys):
    """A whole agent, a real message, and what `oarlock agent show` says afterwards."""
    control, port = str(tmp_path / "agent.sock"), free_port()
    command = [sys.executable, "-m", "oarlock", "agent", "--period", "60", "--listen", "none", "--layout", "torque",
               "--control", control, "--control-zmq", f"127.0.0.1:{port}", "--disable", "perf"]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    program = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    try:
        push(f"tcp://127.0.0.1:{port}", CONFIGURE)

        def shown():
            if main(["agent", "show", "--control", control]) == 0:
                return json.loads(capsys.readouterr().out)
            return {}

        wait_until(lambda: shown().get("period") == 1.5, "the new period", 30)
        now = shown()
        assert (now["perf_events"], now["until_jobs"]) == (["cache_ll", "emulation_faults"], [])
        assert "perf" in now["sources"]
        program.terminate()
        assert program.wait(20) == 0
    finally:
        program.send_signal(signal.SIGKILL)
        program.wait()
        program.stderr.close()
