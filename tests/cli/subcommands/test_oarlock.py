import json
import os
import socket
import subprocess
import sys

import pytest

from oarlock import __version__
from oarlock.cli.oarlock import main
from oarlock.cli.output import unless_nobody_reads
from oarlock.config import KEYS, load
from tests.canned import ok


@pytest.fixture(autouse=True)
def no_settings_of_this_machine(monkeypatch, tmp_path):
    (tmp_path / "empty.conf").touch()
    monkeypatch.setenv("OARLOCK_CONF", str(tmp_path / "empty.conf"))


@pytest.fixture
def conf(tmp_path):
    path = tmp_path / "oar.conf"
    path.write_text('SERVER_PORT=7000\nDETACH_JOB_FROM_SERVER=1\nCLUSTER_NAME="ada\'s"\nDB_BASE_PASSWD=s3cret\n')
    path.chmod(0o600)
    return path


def test_the_version_is_told(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"oarlock {__version__}\n")


def test_every_command_is_explained(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    assert "check a settings file and show every setting in effect" in capsys.readouterr().out


def test_config_shows_every_setting_and_where_it_comes_from(capsys, conf):
    assert main(["config", str(conf)]) == 0
    shown = capsys.readouterr()
    assert f"SERVER_PORT=7000  # {conf}, line 1\n" in shown.out
    assert "SCHEDULER_TIMEOUT=10  # default\n" in shown.out
    assert f"# DB_BASE_PASSWD is set but not shown  # {conf}, line 4\n" in shown.out
    assert "s3cret" not in shown.out
    assert shown.err.startswith(f"oarlock: {conf}, line 2: DETACH_JOB_FROM_SERVER has no effect: ")


def test_what_config_shows_is_a_settings_file_that_means_the_same(capsys, conf, tmp_path):
    conf.write_text("CLUSTER_NAME=\"ada's\"\nOPENSSH_CMD=\"ssh -o 'A B'\"\nKARMA_USER_TARGETS='ada=12.5 bob=1'\n")
    main(["config", str(conf)])
    again = tmp_path / "again.conf"
    again.write_text(capsys.readouterr().out)
    assert load(again).config == load(conf).config


def test_config_names_the_programs_of_the_site_that_could_not_be_run(capsys, conf):
    with conf.open("a") as file:
        file.write('SERVER_PROLOGUE_EXEC_FILE="/no/such/prologue"\nPINGCHECKER_FPING_COMMAND="no-such-fping -q"\n')
    assert main(["config", str(conf)]) == 2
    shown = capsys.readouterr()
    assert "SERVER_PROLOGUE_EXEC_FILE=/no/such/prologue" in shown.out
    assert "SERVER_PROLOGUE_EXEC_FILE: /no/such/prologue cannot be opened: No such file or directory" in shown.err
    assert "PINGCHECKER_FPING_COMMAND: no-such-fping is not in" in shown.err


def test_config_in_json_has_all_keys(capsys, conf):
    assert main(["config", "--json", str(conf)]) == 0
    rows = {row["key"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == list(KEYS)
    assert rows["SERVER_PORT"] == {
        "key": "SERVER_PORT",
        "section": "Server",
        "value": "7000",
        "source": f"{conf}, line 1",
        "hidden": False,
    }
    assert (rows["DB_BASE_PASSWD"]["value"], rows["DB_BASE_PASSWD"]["hidden"]) == ("(hidden)", True)


def test_a_refusal_is_a_sentence_and_a_way_out_and_ends_with_2(capsys, conf):
    conf.write_text("SERVER_PROT=7000\n")
    assert main(["config", str(conf)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == f"oarlock: {conf}, line 1: there is no setting SERVER_PROT.\n  Did you mean SERVER_PORT?\n"


def test_the_package_runs_as_a_module(conf):
    ran = subprocess.run(
        [sys.executable, "-m", "oarlock", "config", "/no/such/file"],
        env=dict(os.environ), capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("oarlock: There is no settings file /no/such/file.")


def test_a_port_that_is_taken_is_a_sentence_and_a_way_out(run, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "oar.conf").write_text(f"SERVER_HOSTNAME=127.0.0.1\nSERVER_PORT={port}\n")
        ran = run("oarlock", "serve", "--state", str(tmp_path / "state"), "--config", "oar.conf")
    told = f"oarlock: Cannot listen on port {port} of 127.0.0.1: Address already in use.\n  SERVER_HOSTNAME and"
    assert (ran.code, ran.out) == (2, "")
    assert told in ran.err
    assert "Traceback" not in ran.err
    assert "alembic" not in ran.err


def test_a_host_that_is_none_is_a_sentence_as_well(run, tmp_path):
    (tmp_path / "oar.conf").write_text("SERVER_HOSTNAME=no.such.host.invalid\n")
    ran = run("oarlock", "serve", "--state", str(tmp_path / "state"), "--config", "oar.conf")
    assert (ran.code, "Traceback" in ran.err) == (2, False)
    assert "oarlock: Cannot listen on no.such.host.invalid: " in ran.err


@pytest.mark.parametrize("server", ["{state}/server.sock", "http://127.0.0.1:6680"])
def test_a_backup_is_of_the_instance_that_commands_speak_to(server, tmp_path, monkeypatch, capsys):
    state, own = tmp_path / "state", tmp_path / "home/.local/state"
    monkeypatch.setenv("OARLOCK_SERVER", server.format(state=state))
    monkeypatch.setenv("XDG_STATE_HOME", str(own))
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert main(["backup", str(tmp_path / "copy")]) == 2
    expected = state if server.startswith("{") else own / "oarlock"
    assert f"There is no database at {expected}/oarlock.db." in capsys.readouterr().err


def test_a_token_for_a_node_is_asked_for_and_written_to_a_file(run, server, tmp_path):
    server.says(ok({"token": "secret"}))
    ran = run("oarlock", "token", "add", "--node", "desk1", "-o", str(tmp_path / "desk1.token"))
    assert (ran.code, (tmp_path / "desk1.token").read_text()) == (0, "secret\n")
    assert server.requests[0].json == {"name": "desk1", "days": 30, "node": "desk1"}
    ran = run("oarlock", "token", "add", "--node", "desk1", "--save")
    assert (ran.code, ran.err) == (2, "oarlock: --save is for a token of your own.\n  Write this one with -o FILE.\n")


def _run_unread(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command with an output that nobody reads any more, as behind `| head`."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        return subprocess.run(
            [sys.executable, "-m", "oarlock", *words], env={**os.environ, **environment}, stdout=write_end,
            stderr=subprocess.PIPE, text=True, timeout=60, check=False,
        )  # fmt: skip
    finally:
        os.close(write_end)


@pytest.mark.parametrize("words", [["config"], ["--help"], ["samples", "--help"], ["completion", "bash"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_left_ends_a_command_quietly(words, unbuffered):
    ran = _run_unread(*words, PYTHONUNBUFFERED=unbuffered)
    assert (ran.returncode, ran.stderr) == (141, "")


@pytest.mark.parametrize("words", [["samples", "1"], ["samples", "1", "--csv"], ["samples", "1", "--json"]])
def test_samples_that_nobody_reads_end_quietly(server, words):
    curve = {"series": "cpus", "node": "n1", "unit": "", "points": [[0, 1.0, 1.0, 1.0]]}
    view = {"job_id": 1, "live": True, "since": 0, "until": 9, "gaps": [], "series": [curve] * 5000}
    server.says(ok(view))
    ran = _run_unread(*words, OARLOCK_SERVER=server.address)
    assert (ran.returncode, ran.stderr) == (141, "")


def test_another_pipe_that_breaks_is_not_taken_for_the_reader():
    def send() -> int:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        unless_nobody_reads(send)


def test_files_that_may_not_be_read_are_a_sentence_and_no_traceback(tmp_path, capsys):
    folder = tmp_path / "samples" / "live"
    folder.mkdir(parents=True)
    folder.parent.chmod(0)
    is_root = os.geteuid() == 0
    try:
        if is_root:
            os.seteuid(65534)
        code = main(["archive", "status", "--state", str(tmp_path)])
    finally:
        if is_root:
            os.seteuid(0)
        folder.parent.chmod(0o700)
    told = capsys.readouterr().err
    assert (code, told.startswith("oarlock: "), "permission denied" in told) == (2, True, True)
