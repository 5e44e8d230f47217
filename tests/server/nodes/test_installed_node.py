"""A node program that was installed: it is sent messages only, keeps what was fixed, and must be the server's own."""

import json
import shlex
from pathlib import Path

import pytest

from oarlock.config import Config
from oarlock.model.errors import NodeRefused, NodeUnreachable
from oarlock.model.submission_errors import BadPath
from oarlock.node.wire.messages import EXITED, UNUSABLE, SiteHooks
from oarlock.server.nodes import installed
from oarlock.server.nodes.command import NodeCommand
from oarlock.server.nodes.fleet import fixed_settings
from oarlock.server.nodes.install import FixedNodeSettings, node_files
from tests.bed import PYTHON, needs_root, open_node, run_async, script

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB root@server"


def test_the_files_are_a_program_a_forced_command_and_one_sudoers_line():
    made = node_files(
        FixedNodeSettings(Path("/s"), Path("/r"), 1000),
        key=f"{KEY}\n",
        program=Path("/opt/oarlock/node"),
        account="oar",
    )
    assert made.authorized_keys == f'restrict,command="sudo -n /opt/oarlock/node" {KEY}\n'
    assert made.sudoers == 'oar ALL=(root) NOPASSWD: /opt/oarlock/node ""\n'
    assert made.program.startswith("#!/usr/bin/python3 -IS\n# The node program of Oarlock ")


@pytest.mark.parametrize(
    ("key", "program"),
    [
        ("", "/opt/node"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----", "/opt/node"),
        (f"{KEY}\n{KEY}", "/opt/node"),
        (f'command="x" {KEY}', "/opt/node"),
        (KEY, "node"),
        (KEY, '/opt/my node"'),
    ],
)
def test_what_could_say_more_than_it_should_is_refused(key, program):
    with pytest.raises(BadPath):
        node_files(FixedNodeSettings(Path("/s"), Path("/r"), 1000), key=key, program=Path(program))


def test_what_is_fixed_comes_from_the_settings():
    config = Config(oar_runtime_directory=Path("/d"), job_min_uid=500, prologue_exec_file=Path("/site/prologue"))
    assert fixed_settings(config) == FixedNodeSettings(Path("/d/spool"), Path("/d/run"), 500, (Path("/site/prologue"),))


def test_the_way_to_it_asks_for_nothing_that_is_executed():
    way = installed("n1", command=("ssh", "-p", "7"))
    assert way.arguments("import os") == [*way.command]
    assert way.command[-5:] == ("-l", "oarlock", "--", "n1", "oarlock-node")


@pytest.fixture
def place(workspace, site):
    """An installed program, behind a pipe that keeps what the server sends."""
    permitted = script(site / "prologue", "true")
    made = node_files(FixedNodeSettings(workspace / "fixed", workspace / "fixedrun", 1000, (Path(permitted),)), key=KEY)
    (site / "node").write_text(made.program)
    return site


def _way(place, *more):
    program = shlex.join([PYTHON, "-IS", f"{place}/node", *more])
    return NodeCommand(("sh", "-c", f"tee {place}/sent | {program}"), quoted=False, installed=True)


@needs_root
@run_async
async def test_jobs_run_and_all_that_was_sent_are_settings_and_messages(workspace, two_users, place):
    async with open_node(workspace, two_users[0], way=_way(place), lowest_uid=0, spool="/nowhere") as post:
        report = await post.run(1, "id -un", hooks=SiteHooks(prologue=f"{place}/prologue"))
        assert (report.outcome, post.out(1)) == (EXITED, f"{two_users[0]}\n")
        assert (workspace / "fixed" / "lock").exists()
        settings, _, rest = (place / "sent").read_bytes().partition(b"\n")
        names = {
            "node",
            "silence",
            "idle",
            "sample_period",
            "sample_sources",
            "check",
            "instance",
            "spool_key",
            "files_kept",
        }
        assert set(json.loads(settings)) == names
        assert b"import " not in rest
        assert len(rest) < 5000


@needs_root
@run_async
async def test_a_program_of_the_site_that_was_not_permitted_is_not_run(workspace, two_users, place):
    script(place / "other", f"touch {workspace}/ran")
    async with open_node(workspace, two_users[0], way=_way(place)) as post:
        for word in ("prologue", "epilogue", "manager"):
            with pytest.raises(NodeRefused) as refusal:
                await post.node.launch(post.launch(1, "true", hooks=SiteHooks(**{word: f"{place}/other"})))
            assert refusal.value.word == UNUSABLE
        assert f"{place}/other is not among the programs" in str(refusal.value)
        assert not (workspace / "ran").exists()
        assert (await post.run(1, "true")).outcome == EXITED


@needs_root
@run_async
async def test_an_installed_node_says_at_once_which_programs_it_would_not_run(workspace, two_users, place):
    there = (f"{place}/prologue", f"{place}/other", "/etc/shadow")
    async with open_node(workspace, two_users[0], way=_way(place), check=there) as post:
        unusable = (await post.node.hello()).unusable
        assert {path: "is not among the programs that were permitted" in why for path, why in unusable.items()} == {
            f"{place}/other": True,
            "/etc/shadow": True,
        }


@needs_root
@run_async
async def test_another_version_is_refused_with_a_way_out(workspace, two_users, place):
    text = (place / "node").read_text()
    (place / "node").write_text(f"{text.rpartition(', ')[0]}, '0123456789ab')\n")
    says = (
        r"its node program is another \(0123456789ab\) than this server's \([0-9a-f]{12}\); run `oarlock node install`"
    )
    with pytest.raises(NodeUnreachable, match=says):
        async with open_node(workspace, two_users[0], way=_way(place)):
            pass
