"""What the page for those who come from OAR says is typed here as it stands."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bed import needs_root
from tests.golden.live import Site, site
from tests.golden.records import record
from tests.lang.cases import needs_golden

PAGE = (Path(__file__).parents[2] / "docs" / "using" / "coming-from-oar.md").read_text()


def place(row: dict[str, Any]) -> list[str]:
    """Return what says which resource this is."""
    return [str(row.get(name) or "") for name in ("type", "host", "mem", "cpu", "core", "cpuset", "licence")]


@needs_root
@needs_golden
@pytest.mark.manual(72, 74, 156)
def test_the_resources_of_oar_come_over_by_the_commands_of_the_page():
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    everything = json.loads(record("nodes_J_all").out)
    recorded = {number: everything[number] for number in ("1", "9", "10", "32")}
    recorded["40"] = {"resource_id": 40, "network_address": "", "type": "licence", "licence": "it's m1"}
    printed = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(recorded), capture_output=True, text=True, check=True
    ).stdout
    with site(kind=Site, nodes=0) as empty:
        for line in printed.splitlines():
            assert empty.run("root", *shlex.split(line)).code == 0, line
        shown = json.loads(empty.run("root", "oarnodes", "-J").out)
        places = [
            (row["host"], row["mem"], row["cpu"], row["core"], row["cpuset"])
            for row in recorded.values()
            if "core" in row
        ]
        assert sorted(places) == sorted(
            (row["host"], row["mem"], row["cpu"], row["core"], str(row["cpuset"]))
            for row in shown.values() if row["type"] == "default"
        )  # fmt: skip
        [licence] = [row for row in shown.values() if row["type"] == "licence"]
        assert (licence["licence"], licence["network_address"] or "") == ("it's m1", "")
        assert empty.run("alice", "oarsub", "--dry-run", "-l", "/host=2/cpu=1/core=1", "true").code == 0


def test_the_commands_that_the_page_names_are_there():
    commands = re.findall(r"^    (oar\w+)", PAGE, re.MULTILINE)
    listed = re.findall(r"`(oar\w+)`", PAGE.partition("## What differs")[0])
    there = {path.stem for path in (Path(__file__).parents[2] / "src" / "oarlock" / "cli").rglob("oar*.py")}
    assert {*commands, *listed} - there == set()
    assert there - set(listed) == {"oarlock"}
