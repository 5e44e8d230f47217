"""Management controllers that the collector reads: real HTTP, one session each, nobody waits for a slow one."""

import hashlib
import logging
import ssl
import time
from pathlib import Path

import pytest

from oarlock.measure.energy import redfish_file
from oarlock.measure.energy.controllers import ControllerFile, ControllerPool
from oarlock.measure.energy.redfish_file import ControlledNode, ControllerAddress
from oarlock.model.errors import ConfigRefused, SecretExposed
from oarlock.node.sources.host.redfish import RedfishController, RedfishError
from tests.measure.energy.controller import Controller, controllers
from tests.server.http.test_tls import certificate as make_certificate
from tests.waiting import wait_until


def address(controller: Controller, **more: object) -> ControllerAddress:
    return ControllerAddress(controller.url, "monitor", "se cret", **more)


def taken(pool, *, nodes: set[str]) -> dict[str, float]:
    """Wait until all of these nodes were read; return what was said last."""
    found: dict[str, float] = {}
    wait_until(lambda: found.update({r.node: r.watts for r in pool.take()}) or found.keys() >= nodes, what="readings")
    return found


def test_every_controller_is_read_again_and_again_with_one_session():
    first, second = Controller(200.0, ("1", "2")), Controller(90.0)
    with controllers(first, second):
        pool = ControllerPool(
            [ControlledNode("n1", address(first)), ControlledNode("n2", address(second))], period=0.05
        )
        assert taken(pool, nodes={"n1", "n2"}) == {"n1": 400.0, "n2": 90.0}
        wait_until(lambda: pool.take() and min(first.readings / 2, second.readings) > 5, what="more readings")
        pool.close(seconds=10)
        assert (first.logins, second.logins, first.tokens, second.tokens) == (1, 1, set(), set())


def test_nodes_of_one_controller_share_its_session_and_have_a_chassis_each():
    manager = Controller(50.0, ("1", "2", "3"))
    with controllers(manager):
        sleds = [ControlledNode(f"n{n}", address(manager), f"/redfish/v1/Chassis/{n}") for n in (1, 2)]
        pool = ControllerPool(sleds, period=600)
        assert taken(pool, nodes={"n1", "n2"}) == {"n1": 50.0, "n2": 50.0}
        assert manager.logins == 1
        pool.close(seconds=10)


def test_controllers_that_hang_or_are_away_hold_up_no_other(caplog):
    """More of them than there are threads; the one that answers is read as often as before."""
    hanging, good = Controller(), Controller(75.0)
    hanging.may_answer.clear()
    with controllers(hanging, good):
        away = [ControlledNode(f"away{n}", ControllerAddress("http://127.0.0.1:9", f"u{n}", "p")) for n in range(40)]
        slow = [ControlledNode(f"slow{n}", address(hanging)._replace(user=f"u{n}")) for n in range(10)]
        pool = ControllerPool([*away, *slow, ControlledNode("good", address(good))], period=0.05)
        assert taken(pool, nodes={"good"}) == {"good": 75.0}
        wait_until(lambda: pool.take() and good.readings > 5, what="more readings")
        assert pool.failing == 40
        assert sum("does not tell its power" in record.message for record in caplog.records) == 40  # each once
        assert "p" not in {getattr(record, "why", "") for record in caplog.records}
        hanging.may_answer.set()
        pool.close(seconds=20)


def test_a_wrong_password_is_said_without_the_password(caplog):
    bmc = Controller(password="another")
    with controllers(bmc):
        pool = ControllerPool([ControlledNode("n1", address(bmc))], period=600)
        wait_until(lambda: pool.take() or pool.failing, what="the failure")
        [record] = caplog.records
        assert (record.node, record.why) == (
            "n1", f"{bmc.url}: the management controller answers 401 to /redfish/v1/Chassis",
        )  # fmt: skip
        pool.close(seconds=20)


def written(path: Path, text: str, mode: int = 0o600) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


FILE = """# controllers
n1        https://n1-bmc:8443/  monitor  "se cret"
n[2-3]    https://{node}-bmc    root     x          insecure   # old
s1 http://cmc/redfish/v1/Chassis/Sled1 root x
"""


def test_the_file_names_nodes_controllers_and_certificates(tmp_path):
    assert redfish_file.read(written(tmp_path / "f", FILE)) == [
        ControlledNode("n1", ControllerAddress("https://n1-bmc:8443", "monitor", "se cret")),
        ControlledNode("n2", ControllerAddress("https://n2-bmc", "root", "x", verify=False)),
        ControlledNode("n3", ControllerAddress("https://n3-bmc", "root", "x", verify=False)),
        ControlledNode("s1", ControllerAddress("http://cmc", "root", "x"), "/redfish/v1/Chassis/Sled1"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("n1 https://b monitor", "line 1 has 3 words"),
        ("n1 bmc1 monitor secret", "`bmc1` is no address"),
        ("\nn1 https://b u p trust-me", "line 2: `trust-me` says nothing about a certificate"),
        ("n1 https://b u p sha256:abc", "`sha256:abc` says nothing about a certificate"),
        ("n1 https://b u p\nn1 https://c u p", "line 2: n1 has a controller already"),
        ("n[1-] https://b u p", "`1-` in `n[1-]` is not a range"),
        ('n1 https://b u "p', "No closing quotation"),
        ("", "is empty"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_with_the_line(tmp_path, text, says):
    with pytest.raises(ConfigRefused) as refused:
        redfish_file.read(written(tmp_path / "f", text))
    assert says in str(refused.value)


def test_a_file_of_passwords_that_others_can_read_is_refused(tmp_path):
    with pytest.raises(SecretExposed, match=r"can be read by others \(mode 0640\)"):
        redfish_file.read(written(tmp_path / "f", FILE, 0o640))


def test_a_changed_file_is_read_again_and_a_wrong_one_changes_nothing(tmp_path, caplog):
    bmc = Controller(60.0)
    with controllers(bmc):
        path = written(tmp_path / "f", f'n1 {bmc.url} monitor "se cret"\n')
        file = ControllerFile(path, period=0.05)
        assert taken(file, nodes={"n1"}) == {"n1": 60.0}
        written(path, "n1 nonsense\n")
        assert taken(file, nodes={"n1"}) == {"n1": 60.0}
        assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [
            "the file of management controllers cannot be used"
        ]
        written(path, f'n2 {bmc.url} monitor "se cret"\n')
        assert taken(file, nodes={"n2"})["n2"] == 60.0
        file.pool.close(seconds=10)


def test_a_certificate_must_be_trusted_or_the_one_that_is_named(tmp_path):
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    bmc = Controller(30.0)
    bmc.socket = context.wrap_socket(bmc.socket, server_side=True)
    digest = hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.read_text())).hexdigest()
    url = f"https://localhost:{bmc.server_port}"
    with controllers(bmc):
        for trusted in ({"fingerprint": digest}, {"verify": False}, {"authority": str(certificate)}):
            session = RedfishController(url, "monitor", "se cret", **trusted)
            assert list(session.read().values()) == [30.0]
            session.close()
        for refused, error in (({}, ssl.SSLCertVerificationError), ({"fingerprint": "0" * 64}, RedfishError)):
            logins = bmc.logins
            session = RedfishController(url, "monitor", "se cret", **refused)
            with pytest.raises(error, match="certificate"):
                session.read()
            session.close()
            assert bmc.logins == logins  # the password was not sent


def test_a_controller_that_never_stops_talking_is_left():
    """A document of more than a megabyte is not read to its end."""
    bmc = Controller()
    bmc.sleds = tuple(str(n) * 50 for n in range(30_000))
    with controllers(bmc):
        session = RedfishController(bmc.url, "monitor", "se cret")
        begin = time.monotonic()
        with pytest.raises(RedfishError, match="too much, or too slowly"):
            session.read()
        assert time.monotonic() - begin < 20
        session.close()
