"""`oarlock portal` as a program: a page of another cluster, over its socket."""

import http.client
import os
import socket
import subprocess
import sys
import time

import psycopg
import pytest
from sqlalchemy import create_engine

from oarlock.store.sources.connections import parse_address
from tests.measure.real import free_port
from tests.sources import oar_cluster
from tests.sources.test_oar import plain
from tests.waiting import wait_until


def get(path, address):
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = socket.socket(socket.AF_UNIX)
    try:
        connection.sock.connect(str(path))
        connection.request("GET", address)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def command(*words, **options):
    environment = {**os.environ, "PYTHONPATH": str(oar_cluster.ROOT / "src")}
    return subprocess.Popen([sys.executable, "-m", "oarlock", "portal", *map(str, words)], env=environment, **options)


@pytest.mark.skipif(os.geteuid() != 0, reason="the socket of a plain user's portal knows that user only")
def test_pages_show_a_live_oar_without_buttons(postgres, tmp_path):
    address = parse_address(postgres.make(template="template0"))
    engine = create_engine(address)
    oar_cluster.metadata.create_all(engine)
    oar_cluster.fill(engine, now=int(time.time()))
    engine.dispose()
    settings = tmp_path / "oar.conf"
    settings.write_text(
        f'SOURCE_DATABASE="{plain(address).replace(":@", "@")}"\nCLUSTER_NAME=theirs\nSERVER_PORT={free_port()}\n'
    )
    state = tmp_path / "state"
    with command(
        "--source", "oar", "--state", state, "--config", settings, stderr=subprocess.PIPE, text=True
    ) as portal:
        try:
            wait_until(lambda: (state / "server.sock").exists() or portal.poll() is not None, "the portal", 60)
            wait_until(lambda: '"Job_Id":2' in get(state / "server.sock", "/api/v1/jobs")[1], "the jobs", 60)
            status, page = get(state / "server.sock", "/jobs?show=all")
            assert status == 200
            assert "<script>alert" not in page
            # Past jobs are copied after those that live.
            wait_until(lambda: "o&#39;neil" in get(state / "server.sock", "/jobs?show=all")[1], "the job of o'neil", 60)
            for path in ("/", "/nodes", "/nodes/node1", "/gantt", "/jobs/1", "/jobs/2", "/jobs/3"):
                status, page = get(state / "server.sock", path)
                assert status == 200, path
                assert 'action="/jobs/act"' not in page or path == "/jobs"
            assert get(state / "server.sock", "/api/v1/sources")[1].count('"answers":true') == 4
        finally:
            portal.terminate()
            _, complaints = portal.communicate(timeout=30)
    assert portal.returncode == 0, complaints
    with psycopg.connect(postgres.admin_url, autocommit=True):
        postgres.drop(plain(address))


def test_a_portal_without_a_database_is_refused(tmp_path):
    settings = tmp_path / "oar.conf"
    settings.write_text("")
    with command("--source", "oar", "--config", settings, stderr=subprocess.PIPE, text=True) as refused:
        _, complaints = refused.communicate(timeout=60)
    assert refused.returncode != 0
    assert "SOURCE_DATABASE does not name the database of OAR." in complaints
