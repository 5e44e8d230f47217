"""Scripts of the site: only what root alone could have written is run as root."""

import os

import pytest

from oarlock.node.attempt.site_script import UntrustedScript, open_trusted, start, why_unusable
from tests.bed import needs_root
from tests.waiting import wait_until


def written(path, text="#!/bin/sh\nexit 0\n", mode=0o755):
    path.write_text(text)
    path.chmod(mode)
    return path


@needs_root
def test_a_script_of_roots_own_is_opened(site):
    os.close(open_trusted(str(written(site / "ok"))))


@needs_root
def test_a_script_that_others_could_write_is_refused(site):
    with pytest.raises(UntrustedScript, match="may be written by others"):
        open_trusted(str(written(site / "open", mode=0o777)))


@needs_root
def test_a_script_below_a_directory_that_others_could_write_is_refused(workspace):
    with pytest.raises(UntrustedScript, match="/tmp may be written by others"):
        open_trusted(str(written(workspace / "script")))


@needs_root
def test_a_script_of_another_user_is_refused(site, two_users):
    path = written(site / "theirs")
    os.chown(path, 4242, 4242)
    with pytest.raises(UntrustedScript, match="may be written by others"):
        open_trusted(str(path))


@needs_root
@pytest.mark.parametrize(
    ("path", "says"), [("relative", "not an absolute path"), ("/root/absent-xyz", "cannot be opened")]
)
def test_a_script_that_is_not_there_is_refused_by_name(path, says):
    with pytest.raises(UntrustedScript, match=says):
        open_trusted(path)


@needs_root
@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        ("#!/bin/sh\n", 0o644, "is not executable"),
        ("#!/opt/absent/perl -w\n", 0o755, "its interpreter /opt/absent/perl is missing"),
    ],
)
def test_a_script_that_cannot_be_executed_is_refused_with_the_reason(site, text, mode, says):
    path = written(site / "broken", text, mode)
    assert says in why_unusable(str(path))


@needs_root
def test_what_the_kernel_does_not_execute_is_told_as_such(site):
    path = written(site / "garbage", "no program at all")
    with pytest.raises(UntrustedScript, match="garbage cannot be executed: Exec format error"):
        start(str(path), [], {}, {}, lambda: None)


@needs_root
def test_nobody_is_told_to_take_a_shared_folder_away_from_everybody(workspace, site):
    shared = why_unusable(str(written(workspace / "script")))
    assert ("chmod" in shared, "/tmp may be written by others" in shared) == (False, True)
    assert "move the file to one that only root can write" in shared
    (site / "open").mkdir(mode=0o755)
    (site / "open").chmod(0o775)
    assert f"`chmod go-w {site}/open`" in why_unusable(str(written(site / "open" / "script")))


@needs_root
def test_a_script_gets_a_constant_environment_and_the_job_on_its_stdin(site, monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "/tmp/evil.so")
    out = site / "out"
    path = written(site / "dump", f"#!/bin/sh\n(env | sort; echo; cat; echo; echo $@; pwd) > {out}\n")
    pid = start(str(path), ["7", "ada"], {"job": 7}, {"OARLOCK_JOB_ID": "7"}, lambda: None)
    assert os.waitpid(pid, 0)[1] == 0
    environment, body, rest = wait_until(out.read_text).split("\n\n", 2)[0], *out.read_text().rsplit("\n", 4)[1:3]
    names = [line.partition("=")[0] for line in environment.splitlines()]
    assert names == ["HOME", "LANG", "OARLOCK_JOB_ID", "PATH", "PWD", "SHELL"]
    assert (body, rest) == ('{"job": 7}', "7 ada")
