"""What is in `prometheus/` is what Prometheus itself accepts."""

import json
import re
import shutil
import subprocess

import pytest

from oarlock.measure.metrics import catalogue
from tests.monitoring import ROOT

FOLDER = ROOT / "prometheus"
PORTAL = ROOT.parent / "shared" / "data" / "portal-queries.json"
OWN = {metric.full_name for metric in catalogue().values()} | {"oarlock_node_job_info"}


def promtool(*arguments, **options):
    ran = subprocess.run([shutil.which("promtool"), *arguments], capture_output=True, text=True, timeout=60, **options)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def records(text):
    return re.findall(r"record: (\S+)", text)


@pytest.mark.component("promtool")
def test_the_rules_are_rules_and_compute_what_they_say():
    count = len(records((FOLDER / "rules.yml").read_text()))
    assert f"SUCCESS: {count} rules found" in promtool("check", "rules", FOLDER / "rules.yml")
    promtool("test", "rules", "rules.test.yml", cwd=FOLDER)


@pytest.mark.component("promtool")
def test_the_example_is_a_configuration_of_prometheus():
    promtool("check", "config", FOLDER / "prometheus.yml")


def test_the_portals_rules_are_there_and_each_job_rule_has_a_twin():
    ours = set(records((FOLDER / "rules.yml").read_text()))
    if not PORTAL.exists():
        pytest.skip("the portal's queries are not here")
    wanted = {rule["record"] for rule in json.loads(PORTAL.read_text())["recording_rules"]}
    assert len(wanted) == 23
    assert wanted <= ours
    twins = {name.replace("slurm_job:", "oarlock_job:") for name in wanted if name.startswith("slurm_job:")}
    assert twins <= ours


def expressions():
    dashboard = json.loads((FOLDER / "dashboard.json").read_text())
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


@pytest.mark.component("promtool")
def test_every_question_of_the_dashboard_is_promql(tmp_path):
    rules = [{"record": f"panel:{at}", "expr": expression} for at, expression in enumerate(expressions())]
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    assert f"SUCCESS: {len(rules)} rules found" in promtool("check", "rules", tmp_path / "rules.yml")


def test_rules_and_dashboard_ask_only_for_what_is_measured():
    recorded = set(records((FOLDER / "rules.yml").read_text()))
    texts = [(FOLDER / "rules.yml").read_text(), *expressions()]
    named = {name for text in texts for name in re.findall(r"oarlock_(?:job|node|agent)[a-z0-9_:]*", text)}
    assert named - OWN - recorded == set()


def test_panels_of_the_dashboard_do_not_lie_on_each_other():
    panels = json.loads((FOLDER / "dashboard.json").read_text())["panels"]
    squares = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(squares) == len(set(squares))
    assert len({panel["id"] for panel in panels}) == len(panels)
