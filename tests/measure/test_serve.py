import http.client
import socket
import ssl
import subprocess
import time

import pytest

from oarlock.measure.exposition import CONTENT_TYPE, MetricsPage
from oarlock.measure.http import MOST_CONNECTIONS, MetricsAccess, MetricsServer, check_address, parse
from oarlock.model.errors import ConfigRefused
from tests.waiting import wait_until

PAGE = MetricsPage(0.0, [b"a 1\n", b"b 2\n" * 200_000], 200_001)


@pytest.fixture
def serve():
    """Start servers that are closed at the end."""
    servers = []

    def start(page=PAGE, **options):
        servers.append(MetricsServer(("127.0.0.1", 0), lambda: page, **options))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def get(server, path="/metrics", method="GET", **headers):
    connection = http.client.HTTPConnection(*server.address, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read()
    finally:
        connection.close()


def test_the_page_is_handed_out_whole(serve):
    assert get(serve()) == (200, CONTENT_TYPE, b"".join(PAGE.pieces))


def test_one_connection_serves_many_requests(serve):
    connection = http.client.HTTPConnection(*serve().address, timeout=10)
    for _ in range(3):
        connection.request("GET", "/metrics?x=1")
        assert len(connection.getresponse().read()) == 800_004
    connection.close()


def test_what_else_is_asked_for_is_answered_too(serve):
    server = serve()
    assert get(server, "/")[0] == 200
    assert get(server, "/etc/passwd")[0] == 404
    assert get(server, method="POST")[0] == 400
    assert get(server, method="HEAD") == (200, CONTENT_TYPE, b"")


def test_before_the_first_sample_and_after_the_last_there_is_no_page(serve):
    assert get(serve(page=None))[0] == 503
    old = MetricsPage(time.time() - 60, [b"a 1\n"], 1)
    assert get(serve(page=old, oldest_seconds=lambda: 30.0))[0] == 503
    assert get(serve(page=old, oldest_seconds=lambda: 90.0))[0] == 200


def test_a_token_is_asked_for_where_there_is_one(serve):
    server = serve(access=MetricsAccess(token="s3cret"))
    assert get(server)[0] == 401
    assert get(server, Authorization="Bearer wrong")[0] == 401
    assert get(server, Authorization="Bearer s3cret")[0] == 200


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"GET / FTP/3\r\n\r\n", b"\xff\xfe\r\n\r\n"])
def test_nonsense_is_refused_and_harms_nobody(serve, sent):
    server = serve()
    with socket.create_connection(server.address, timeout=10) as connection:
        connection.sendall(sent)
        assert connection.recv(100).startswith(b"HTTP/1.1 400 ")
    assert get(server)[0] == 200


def test_a_request_without_end_is_cut_off(serve):
    with socket.create_connection(serve().address, timeout=10) as connection:
        connection.sendall(b"GET /" + b"a" * 20_000)
        assert read_to_the_end(connection) == b""


def read_to_the_end(connection):
    try:
        return connection.recv(100)
    except ConnectionResetError:
        return b""


def test_silent_clients_leave_room_for_others_only_up_to_a_limit(serve):
    server = serve()
    silent = [socket.create_connection(server.address, timeout=10) for _ in range(MOST_CONNECTIONS)]
    wait_until(lambda: refused(server), "the limit")
    silent.pop().close()
    wait_until(lambda: not refused(server), "room for one more")
    for one in silent:
        one.close()


def refused(server):
    try:
        return get(server)[0] != 200
    except (OSError, http.client.HTTPException):
        return True


def test_with_a_certificate_the_page_travels_by_tls(serve, tmp_path):
    files = [str(tmp_path / name) for name in ("key.pem", "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost",
                    "-keyout", files[0], "-out", files[1]], check=True, capture_output=True, timeout=60)  # fmt: skip
    server = serve(access=MetricsAccess(tmp_path / "cert.pem", tmp_path / "key.pem", "s3cret"))
    context = ssl.create_default_context(cafile=files[1])
    context.check_hostname = False
    connection = http.client.HTTPSConnection(*server.address, context=context, timeout=10)
    connection.request("GET", "/metrics", headers={"Authorization": "Bearer s3cret"})
    assert connection.getresponse().read() == b"".join(PAGE.pieces)
    connection.close()
    with pytest.raises(ConfigRefused, match="cannot be used"):
        serve(access=MetricsAccess(tmp_path / "absent.pem", None, "s3cret"))


def test_beyond_this_machine_tls_and_a_token_are_wanted(tmp_path):
    whole = MetricsAccess(tmp_path / "cert.pem", tmp_path / "key.pem", "s3cret")
    for host in ("127.0.0.1", "::1", "localhost"):
        check_address(host, MetricsAccess(), open_to_all=False)
    check_address("0.0.0.0", whole, open_to_all=False)
    check_address("node7", MetricsAccess(), open_to_all=True)
    for access in (MetricsAccess(), whole._replace(token=None), whole._replace(certificate=None)):
        with pytest.raises(ConfigRefused, match=r"Listening on 0\.0\.0\.0"):
            check_address("0.0.0.0", access, open_to_all=False)


def test_a_port_that_is_taken_is_told(serve):
    with pytest.raises(ConfigRefused, match="Address already in use"):
        MetricsServer(serve().address, lambda: PAGE)


def test_a_request_is_read_and_what_is_none_is_not():
    asked = parse(b"GET /metrics?name=x HTTP/1.1\r\nHost: a:1\r\nConnection: close")
    assert (asked.path, asked.headers, asked.keeps) == ("/metrics", {"host": "a:1", "connection": "close"}, False)
    assert parse(b"GET / HTTP/1.0").keeps is False
    assert parse(b"hello") is None
