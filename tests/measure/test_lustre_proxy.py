"""`oarlock lustre-proxy`: the page of lustre_exporter with the owners of jobs."""

import os
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from oarlock.measure.batch import JobFacts
from oarlock.measure.lustre_proxy import JobOwnerLabels, LustreProxy, labelled, owner_by_name
from oarlock.model.errors import ConfigRefused
from tests.measure.real import free_port
from tests.monitoring import ROOT
from tests.waiting import wait_until

PAGE = """# HELP lustre_job_read_bytes_total The total number of bytes that have been read.
# TYPE lustre_job_read_bytes_total counter
lustre_job_read_bytes_total{component="ost",jobid="41",target="scratch-OST0000"} 1.5e+06
lustre_job_read_bytes_total{component="ost",jobid="42",target="scratch-OST000a"} 7
lustre_job_stats_total{component="mdt",jobid="cp.0",operation="open",target="home-MDT0000"} 3
lustre_read_bytes_total{component="ost",target="scratch-OST0000"} 9
"""
OWNERS = {"41": JobOwnerLabels("ada", "physics"), "cp.0": JobOwnerLabels("root")}


def test_series_of_jobs_get_user_account_and_file_system():
    assert "".join(labelled(PAGE.splitlines(keepends=True), OWNERS, cluster="peer")).splitlines()[2:] == [
        (
            'lustre_job_read_bytes_total{component="ost",jobid="41",target="scratch-OST0000",user="ada",account="physics",'
            'fs="scratch",cluster="peer"} 1.5e+06'
        ),
        (
            'lustre_job_stats_total{component="mdt",jobid="cp.0",operation="open",target="home-MDT0000",user="root",'
            'fs="home",cluster="peer"} 3'
        ),
        'lustre_read_bytes_total{component="ost",target="scratch-OST0000"} 9',
    ], "a job of which nothing is known yet is left out, and the rest stays as it is"


@pytest.mark.parametrize(
    ("job", "user"),
    [("cp.0", "root"), ("my.prog.0", "root"), ("cp.ada", "ada"), ("cp.4294967290", "4294967290"), ("kworker", ""),
     ('x.a"b', ""), ("cp." + "9" * 40, "9" * 40)],
)  # fmt: skip
def test_a_jobid_of_a_program_names_its_user(job, user):
    assert owner_by_name(job).user == user


def test_an_address_that_is_none_is_refused():
    with pytest.raises(ConfigRefused, match="not the address"):
        LustreProxy("mds1:9169", _Known())


class _Known:
    """Knows job 41 at once and 42 never."""

    def __init__(self) -> None:
        self.kept = None

    def facts(self, job):
        return JobFacts("ada", "physics") if job == "41" else None

    def keep(self, jobs):
        self.kept = set(jobs)


@contextmanager
def exporter(page=PAGE, status=200):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(page.encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/metrics"
        finally:
            server.shutdown()
            thread.join()


def test_a_job_that_cannot_be_looked_up_holds_nothing_up_for_long():
    known = _Known()
    with exporter() as url:
        page = LustreProxy(url, known, wait=0.1).page()
    text = b"".join(page.pieces).decode()
    assert 'jobid="41"' in text
    assert 'jobid="42"' not in text
    assert known.kept == {"41", "42"}


@pytest.mark.parametrize("status", [404, 500])
def test_there_is_no_page_without_an_exporter(status):
    with exporter("", status) as url:
        assert LustreProxy(url, _Known()).page() is None
    assert LustreProxy(f"http://127.0.0.1:{free_port()}", _Known()).page() is None


SCONTROL = """#!/bin/sh
for job; do :; done
echo "JobId=$job JobName=x UserId=user$job(100) GroupId=g(1) Account=acct$job QOS=n"
"""


def test_the_command_asks_slurm_and_serves_the_page(tmp_path):
    (tmp_path / "scontrol").write_text(SCONTROL)
    (tmp_path / "scontrol").chmod(0o755)
    port = free_port()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    with exporter() as url:
        command = [sys.executable, "-m", "oarlock", "lustre-proxy", "--upstream", url, "--look-up", "slurm",
                   "--listen", f"127.0.0.1:{port}"]  # fmt: skip
        with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as proxy:
            try:
                text = _page(port, proxy)
            finally:
                proxy.send_signal(signal.SIGTERM)
                proxy.communicate(timeout=30)
    assert 'jobid="42",target="scratch-OST000a",user="user42",account="acct42",fs="scratch"' in text
    assert proxy.returncode == 0


def _page(port, proxy):
    pages = []

    def is_whole():
        assert proxy.poll() is None, proxy.stderr.read()
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                pages.append(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return False
        return "acct42" in pages[-1]

    wait_until(is_whole, "the proxy", 60)
    return pages[-1]
