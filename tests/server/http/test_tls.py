"""The port speaks TLS with the certificate of the settings; tokens open it for commands on other machines."""

import os
import socket
import ssl
from pathlib import Path

import pytest

from oarlock.cli import oarlock
from oarlock.client import Client, RequestRefused
from oarlock.config import Config
from oarlock.model.errors import ConfigRefused
from oarlock.server.http import listen, tls
from oarlock.server.http.connection import ConnectionLimits
from tests import canned
from tests.certificates import certificate, expire
from tests.waiting import wait_until
from tests.web.nodeless_server import NodelessServer, Running, alone


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return certificate(tmp_path)


def served(api: Running) -> bytes:
    """Return the certificate that the port shows."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", api.port), 5) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        shown = secure.getpeercert(binary_form=True)
    assert shown
    return shown


def of_file(path: Path) -> bytes:
    return ssl.PEM_cert_to_DER_cert(path.read_text())


def command(api: Running, *words: str) -> int:
    return oarlock.main([*words, "--server", str(api.socket)])


def test_a_command_with_a_token_is_answered_over_tls(
    sqlite_path: Path, pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("OARLOCK_CA", str(pair[0]))
    monkeypatch.delenv("OARLOCK_TOKEN", raising=False)
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        far = Client(f"https://localhost:{api.port}")
        with pytest.raises(RequestRefused, match="needs a token"):
            far.jobs()
        assert command(api, "token", "add", "laptop", "--save") == 0
        kept = tmp_path / "config" / "oarlock" / "token"
        assert kept.stat().st_mode & 0o777 == 0o600
        assert far.jobs() == []
        kept.chmod(0o644)
        with pytest.raises(RequestRefused, match="Others can read your token"):
            far.jobs()
        kept.chmod(0o600)
        assert command(api, "token", "revoke", "laptop") == 0
        with pytest.raises(RequestRefused) as refused:
            far.jobs()
        assert refused.value.kind == "NotSignedIn"


def test_the_socket_stays_in_the_clear_and_the_port_does_not(sqlite_path: Path, pair: tuple[Path, Path]):
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        assert api.client.get("/version").status == 200
        with socket.create_connection(("127.0.0.1", api.port), 5) as plain:
            plain.sendall(b"GET /api/v1/version HTTP/1.1\r\nHost: x\r\n\r\n")
            assert not plain.recv(100).startswith(b"HTTP")


def test_connections_count_before_they_have_spoken_tls(sqlite_path: Path, pair: tuple[Path, Path]):
    limits = ConnectionLimits(Config().allowed_networks, most_of_one=3, refusal_seconds=0.0)
    with alone(sqlite_path, limits=limits, tls_certificate=pair[0], tls_key=pair[1]) as api:
        silent = [socket.create_connection(("127.0.0.1", api.port), 20) for _ in range(5)]
        assert [sock.recv(100) for sock in silent[3:]] == [b"", b""]  # nothing that TLS could not read
        assert limits.open == {"this machine": 3}
        for sock in silent:
            sock.close()
        wait_until(lambda: not limits.open)


def test_a_certificate_of_an_unknown_authority_is_refused(sqlite_path: Path, pair: tuple[Path, Path], monkeypatch):
    monkeypatch.setenv("OARLOCK_TOKEN", "x")
    monkeypatch.delenv("OARLOCK_CA", raising=False)
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        with pytest.raises(RequestRefused, match="is not to be trusted") as refused:
            Client(f"https://localhost:{api.port}").jobs()
        assert "OARLOCK_CA" in refused.value.hint


def test_a_certificate_that_expired_is_refused_until_it_is_renewed(
    sqlite_path: Path, pair: tuple[Path, Path], monkeypatch
):
    monkeypatch.setattr(tls, "_LOOK_SECONDS", 0.0)
    monkeypatch.setenv("OARLOCK_TOKEN", "x")
    monkeypatch.setenv("OARLOCK_CA", str(pair[0]))
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        expire(*pair)
        with pytest.raises(RequestRefused, match="expired"):
            Client(f"https://localhost:{api.port}").jobs()
        certificate(pair[0].parent)
        with pytest.raises(RequestRefused, match="token"):  # it gets as far as the token, which is not one
            Client(f"https://localhost:{api.port}").jobs()


def test_a_renewed_certificate_is_shown_without_a_restart(sqlite_path: Path, pair: tuple[Path, Path], monkeypatch):
    monkeypatch.setattr(tls, "_LOOK_SECONDS", 0.0)
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        before = of_file(pair[0])
        assert served(api) == before
        certificate(pair[0].parent, "renewed")
        assert served(api) == of_file(pair[0]) != before


def test_half_of_a_renewed_pair_changes_nothing(sqlite_path: Path, pair: tuple[Path, Path], monkeypatch, caplog):
    monkeypatch.setattr(tls, "_LOOK_SECONDS", 0.0)
    with alone(sqlite_path, tls_certificate=pair[0], tls_key=pair[1]) as api:
        before = served(api)
        other = pair[0].parent / "other"
        other.mkdir()
        certificate(other)[1].replace(pair[1])
        assert served(api) == before
    assert "the new certificate is not used" in caplog.text


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"tls_certificate": "cert"}, "TLS_KEY is not set"),
        ({"tls_key": "key"}, "TLS_CERTIFICATE is not set"),
        ({"tls_certificate": "key", "tls_key": "key"}, "cannot be used"),
        ({"tls_certificate": "cert", "tls_key": "gone"}, "cannot be read"),
        ({"tls_certificate": "cert", "tls_key": "open"}, "Others can read or write the private key"),
    ],
)
def test_what_cannot_be_used_is_refused_at_the_start(pair: tuple[Path, Path], settings: dict[str, str], says: str):
    readable = pair[1].with_name("open.pem")
    readable.write_bytes(pair[1].read_bytes())
    readable.chmod(0o644)
    files = {"cert": pair[0], "key": pair[1], "gone": Path("/nonexistent/key"), "open": readable}
    config = Config(**{name: files[file] for name, file in settings.items()})
    with pytest.raises(ConfigRefused, match=says):
        tls.server_context(config)


async def _listens(folder: Path, **settings: object) -> None:
    core = NodelessServer(folder, Config(server_port=0, **settings), None)  # type: ignore[arg-type]
    listeners = await listen.listen(core)
    for sock in (listeners.unix, *listeners.tcp):
        sock.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_beyond_this_machine_only_tls_or_a_proxy_is_listened_for(tmp_path: Path, pair: tuple[Path, Path], host: str):
    import asyncio

    with pytest.raises(ConfigRefused, match="unencrypted") as refused:
        asyncio.run(_listens(tmp_path, server_hostname=host))
    assert "TLS_ENDED_BY_PROXY" in refused.value.hint
    asyncio.run(_listens(tmp_path, server_hostname=host, tls_ended_by_proxy=True))
    asyncio.run(_listens(tmp_path, server_hostname=host, tls_certificate=pair[0], tls_key=pair[1]))


def test_tokens_are_listed_without_what_they_are(sqlite_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path):
    with alone(sqlite_path) as api:
        assert command(api, "token", "list") == 0
        assert "You have no token" in capsys.readouterr().out
        assert command(api, "token", "add", "ci", "--days", "3") == 0
        shown = capsys.readouterr().out.strip()
        assert command(api, "token", "list") == 0
        listed = capsys.readouterr().out
        assert listed.startswith("ci ")
        assert shown not in listed
        assert command(api, "token", "add", "ci") == 2
        assert "was made already" in capsys.readouterr().err
        assert command(api, "token", "revoke", "other") == 2
        assert "You have no token `other`" in capsys.readouterr().err


def test_a_token_goes_to_a_new_private_file_or_is_not_made(
    sqlite_path: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
):
    tmp_path = tmp_path / "home"
    tmp_path.mkdir()
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("mine")
    link.symlink_to(tmp_path / "target")
    with alone(sqlite_path) as api:
        for path in (there, link, tmp_path / "no" / "folder"):
            assert command(api, "token", "add", "ci", "-o", str(path)) == 2
        assert command(api, "token", "list") == 0
        assert "You have no token" in capsys.readouterr().out
        assert there.read_text() == "mine"
        assert not os.path.lexists(tmp_path / "target")
        assert command(api, "token", "add", "ci", "-o", str(tmp_path / "new")) == 0
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "new", "there"]


def test_the_key_of_a_job_opens_no_connection_of_a_desktop(sqlite_path: Path):
    """Who shows a key (`oarsh`) needs no token for a session, and is nobody elsewhere."""
    with alone(sqlite_path) as api, socket.create_connection(("127.0.0.1", api.port), 5) as plain:
        head = "Host: localhost\r\nAuthorization: JobKey\r\nConnection: Upgrade\r\nUpgrade: oarlock-session\r\n\r\n"
        plain.sendall(f"GET /api/v1/desktops HTTP/1.1\r\n{head}".encode())
        assert plain.recv(4096).startswith(b"HTTP/1.1 401 ")
        assert api.core.asked == []


def test_an_answer_over_tls_that_is_cut_off_is_none(pair: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OARLOCK_CA", str(pair[0]))
    monkeypatch.setenv("OARLOCK_TOKEN", "x")
    server, end = canned.tls(*pair)
    try:
        assert Client(server.says(canned.ok({"jobs": [1] * 100_000})).address).jobs() == [1] * 100_000
        server.says(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort")
        with pytest.raises(RequestRefused, match="took the request but did not answer"):
            Client(server.address).jobs()
    finally:
        end()
