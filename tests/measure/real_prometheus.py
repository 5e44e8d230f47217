"""A real Prometheus for tests, and the questions that a real portal asks it."""

import json
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from pathlib import Path

from tests.measure.real import free_port
from tests.monitoring import ROOT

PORTAL = ROOT.parent / "shared" / "data" / "portal-queries.json"
BY_PATH = {"public.graph_software_processes_cvmfs.1"}
"""Asks for executables below a folder; we tell names only, never paths."""

STEADY = """import time
begin = time.monotonic()
while True:
    while time.process_time() < (time.monotonic() - begin) / 5: pass
    time.sleep(0.02)"""
"""A program that takes a fifth of a core, second by second, however busy the machine is: what it is kept from doing it
does afterwards. One that takes all that it gets is as steady only on a machine that has nothing else to do."""

_GLOBAL = f"""
global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}
rule_files: ["{ROOT}/prometheus/rules.yml"]
scrape_configs:
"""


class Prometheus:
    """A real one, with a port of its own; `scrape` is one entry of its `scrape_configs`, `options` more arguments."""

    def __init__(self, folder: Path, scrape: str, *options: str):
        (folder / "prometheus.yml").write_text(_GLOBAL + scrape)
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/api/v1"
        command = ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                   f"--web.listen-address=127.0.0.1:{port}", "--log.level=error", *options]  # fmt: skip
        self.program = subprocess.Popen(command, stderr=subprocess.DEVNULL)

    def ask(self, promql, *, at, ranged=False):
        """Give the series of an answer, each with its labels and its last value."""
        times = {"start": at - 3, "end": at, "step": 1} if ranged else {"time": at}
        query = urllib.parse.urlencode({"query": promql, **times})
        with urllib.request.urlopen(f"{self.url}/{'query_range' if ranged else 'query'}?{query}", timeout=20) as answer:
            found = json.load(answer)["data"]["result"]
        return [(one["metric"], float((one["values"][-1] if ranged else one["value"])[1])) for one in found]

    def all_series(self, match, *, since, until):
        """Give the labels of all series that match."""
        query = urllib.parse.urlencode({"match[]": match, "start": since, "end": until})
        with urllib.request.urlopen(f"{self.url}/series?{query}", timeout=20) as answer:
            return json.load(answer)["data"]

    def value(self, promql, at):
        [(_, value)] = self.ask(promql, at=at)
        return value

    def ready(self):
        try:
            with urllib.request.urlopen(self.url.replace("/api/v1", "/-/ready"), timeout=5):
                return True
        except OSError:
            return False

    def has(self, promql):
        """Whether there is an answer now."""
        return len(self.ask(promql, at=time.time())) > 0

    def end(self):
        self.program.send_signal(signal.SIGTERM)
        self.program.wait(30)


def portal_queries(*tiers):
    """Give the questions of some tiers; none where they are not here."""
    if not PORTAL.exists():
        return []
    return [query for query in json.loads(PORTAL.read_text())["queries"] if query["tier"] in tiers]


def answers(prometheus, at, *tiers, **values):
    """Ask all questions of some tiers about these things; give the answers by the question's name."""
    return {
        one["id"]: prometheus.ask(_filled(one["promql"], values), at=at, ranged=one["api"] == "query_range")
        for one in portal_queries(*tiers)
    }


def _filled(text, values):
    for name, value in values.items():
        text = text.replace(f"${{{name}}}", value)
    return text


def lacking(found, *tiers):
    """Name the questions whose answers lack a label that the portal reads."""
    wanted = {query["id"]: set(query["labels_read_from_result"]) for query in portal_queries(*tiers)}
    return {name for name, answer in found.items() for labels, _ in answer if not wanted[name] <= labels.keys()}
