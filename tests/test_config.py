"""Settings: found, read, and refused with a line and a way out."""

import ast
import contextlib
import os
import time
from ipaddress import ip_network
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oarlock
from oarlock.config import KEYS, Config, Loaded, load
from oarlock.model.errors import ConfigRefused, OarlockError
from oarlock.model.resource import ResourceOrder
from oarlock.settings.kinds import AfterError, DbType, NodeTransport
from oarlock.settings.unused import UNUSED

MANUAL = """
DB_TYPE DB_HOSTNAME DB_BASE_NAME DB_BASE_LOGIN DB_BASE_PASSWD DB_BASE_LOGIN_RO DB_BASE_PASSWD_RO SERVER_HOSTNAME
SERVER_PORT OARSUB_DEFAULT_RESOURCES OARSUB_FORCE_JOB_KEY DEPLOY_HOSTNAME COSYSTEM_HOSTNAME DETACH_JOB_FROM_SERVER
OAR_RUNTIME_DIRECTORY NODE_FILE_DB_FIELD NODE_FILE_DB_FIELD_DISTINCT_VALUES PINGCHECKER_TAKTUK_ARG_COMMAND
PINGCHECKER_SENTINELLE_SCRIPT_COMMAND PINGCHECKER_FPING_COMMAND PINGCHECKER_NMAP_COMMAND PINGCHECKER_GENERIC_COMMAND
LOG_LEVEL LOG_FILE OAREXEC_DEBUG_MODE ALLOWED_NETWORKS ACCOUNTING_WINDOW MAIL_SMTP_SERVER MAIL_RECIPIENT MAIL_SENDER
PROLOGUE_EPILOGUE_TIMEOUT PROLOGUE_EXEC_FILE EPILOGUE_EXEC_FILE SERVER_PROLOGUE_EPILOGUE_TIMEOUT
SERVER_PROLOGUE_EXEC_FILE SERVER_EPILOGUE_EXEC_FILE FINAUD_FREQUENCY DEAD_SWITCH_TIME SCHEDULER_TIMEOUT
RESERVATION_WAITING_RESOURCES_TIMEOUT SCHEDULER_JOB_SECURITY_TIME SCHEDULER_GANTT_HOLE_MINIMUM_TIME
SCHEDULER_RESOURCE_ORDER SCHEDULER_RESOURCES_ALWAYS_ASSIGNED_TYPE SCHEDULER_AVAILABLE_SUSPENDED_RESOURCE_TYPE
SUSPEND_RESUME_FILE JUST_AFTER_SUSPEND_EXEC_FILE JUST_BEFORE_RESUME_EXEC_FILE SUSPEND_RESUME_SCRIPT_TIMEOUT
JOB_RESOURCE_MANAGER_PROPERTY_DB_FIELD JOB_RESOURCE_MANAGER_FILE TAKTUK_CMD SCHEDULER_NODE_MANAGER_WAKE_UP_CMD
SCHEDULER_NODE_MANAGER_SLEEP_CMD SCHEDULER_NODE_MANAGER_IDLE_TIME SCHEDULER_NODE_MANAGER_SLEEP_TIME OPENSSH_CMD
DESKTOP_COMPUTING_ALLOW_CREATE_NODE DESKTOP_COMPUTING_EXPIRY STAGEOUT_DIR STAGEIN_DIR STAGEIN_CACHE_EXPIRY
OARSH_OARSTAT_CMD OARSH_OPENSSH_DEFAULT_OPTIONS OARMONITOR_SENSOR_FILE
""".split()  # noqa: SIM905 - a list of a page is easier to compare with the manual


@pytest.fixture
def conf(tmp_path):
    """Write a settings file and load it."""

    def write_and_load(text, mode=0o644):
        path = tmp_path / "oar.conf"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        path.chmod(mode)
        return load(path, environment={})

    return write_and_load


def test_no_file_is_needed(tmp_path):
    assert load(environment={}, system=tmp_path / "none") == Loaded(Config())


@pytest.mark.manual(156, 157, 158, 160, 161, 162, 163, 165, 170, 174, 176, 177)
def test_every_key_of_the_manual_is_known():
    assert [key for key in MANUAL if key not in KEYS and key not in UNUSED] == []


def test_every_setting_has_a_reader():
    source = Path(oarlock.__file__).parent
    read = {
        node.attr.upper()
        for path in source.rglob("*.py")
        if path.parent.name != "settings" and path != source / "config.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node.value).rpartition(".")[2] in {"config", "_config"}
    }
    assert [name for name in KEYS if name not in read] == []


def test_no_key_is_both_used_and_unused():
    assert set(KEYS) & set(UNUSED) == set()


def test_every_setting_has_a_sentence():
    assert [key.name for key in KEYS.values() if not key.says.endswith(".") or not key.says[0].isupper()] == []


def test_every_default_can_be_written_and_read_again():
    config = Config()
    assert {name: key.kind.read(key.shown(config)) for name, key in KEYS.items()} == {
        name: key.value(config) for name, key in KEYS.items()
    }


def test_values_have_the_types_of_their_fields(conf):
    loaded = conf("""
        DB_TYPE=Pg
        CLUSTER_NAME="ada's"            # quotes as bash reads them
        ALLOWED_NETWORKS="10.1.2.3/8 ::1"
        ADMINS="root ada"
        OPENSSH_CMD="/usr/bin/ssh -p 6667 -o 'A B'"
        OARSUB_FORCE_JOB_KEY=NO
        METRICS_NEED_TOKEN=YES
        SCHEDULER_RESOURCE_ORDER="switch, network_address desc"
        KARMA_PROJECT_TARGETS="first=75 default=25"
        KARMA_COEFF_USER_CONSUMPTION=0.5
        LOG_FILE=/var/log/oarlock.log
        MAIL_RECIPIENT="ada@lab.org, bob@lab.org"
        DEPENDENCY_AFTER_ERROR=hold
        NODE_TRANSPORT=local
        PROLOGUE_EXEC_FILE=
    """)
    assert loaded.config == Config(
        db_type=DbType.POSTGRESQL,
        cluster_name="ada's",
        allowed_networks=(ip_network("10.0.0.0/8"), ip_network("::1/128")),
        admins=("root", "ada"),
        openssh_cmd=("/usr/bin/ssh", "-p", "6667", "-o", "A B"),
        metrics_need_token=True,
        scheduler_resource_order=(ResourceOrder("switch"), ResourceOrder("network_address", descending=True)),
        karma_project_targets={"first": 75.0, "default": 25.0},
        karma_coeff_user_consumption=0.5,
        log_file=Path("/var/log/oarlock.log"),
        mail_recipient=("ada@lab.org", "bob@lab.org"),
        dependency_after_error=AfterError.HOLD,
        node_transport=NodeTransport.LOCAL,
        prologue_exec_file=None,
    )
    assert loaded.lines["ADMINS"] == 5
    assert loaded.warnings == ()


def test_a_reference_to_an_earlier_setting(conf):
    assert conf("SERVER_HOSTNAME=head\nDEPLOY_HOSTNAME=$SERVER_HOSTNAME.lab\n").config.deploy_hostname == "head.lab"


def test_keys_of_oar_without_effect_are_warned_of_with_the_reason(conf, tmp_path):
    unused = ("DETACH_JOB_FROM_SERVER", "OARSH_OARSTAT_CMD", "OARSH_OPENSSH_DEFAULT_OPTIONS")
    loaded = conf("SERVER_PORT=6666\n" + "".join(f"{name}='-oForwardX11=no'\n" for name in unused))
    assert loaded.config == Config(server_port=6666)
    assert loaded.warnings == tuple(
        f"{tmp_path}/oar.conf, line {line}: {name} has no effect: {UNUSED[name]}."
        for line, name in enumerate(unused, 2)
    )


def test_oars_own_perl_script_is_passed_over(conf, tmp_path):
    loaded = conf("JOB_RESOURCE_MANAGER_FILE=cpuset_manager.pl\n")
    assert (loaded.config, len(loaded.warnings)) == (Config(), 1)
    assert loaded.warnings[0].startswith(f"{tmp_path}/oar.conf, line 1: JOB_RESOURCE_MANAGER_FILE has no effect: what")
    loaded = conf("JOB_RESOURCE_MANAGER_FILE=/etc/oar/groups\n")
    assert loaded == Loaded(
        Config(job_resource_manager_file=Path("/etc/oar/groups")),
        file=tmp_path / "oar.conf",
        lines={"JOB_RESOURCE_MANAGER_FILE": 1},
    )


LIKE_OAR_2_5 = """
# General
DB_TYPE="Pg"
DB_PORT="5432"
DB_BASE_PASSWD=""
SERVER_PORT="6666"
LOG_CATEGORIES="all"
OAR_RUNTIME_DIRECTORY="/var/lib/oar"
OPENSSH_CMD="/usr/bin/ssh -p 6667"
PINGCHECKER_SENTINELLE_SCRIPT_COMMAND="/usr/lib/oar/sentinelle.pl -t 30 -w 20"
SCHEDULER_NB_PROCESSES=1
SCHEDULER_RESOURCE_ORDER="scheduler_priority ASC, state_num ASC, available_upto DESC, resource_id ASC"
SCHEDULER_FAIRSHARING_PROJECT_TARGETS="{ first => 75, default => 25 }"
ENERGY_SAVING_INTERNAL="no"
GET_CURRENT_CPUSET_CMD="cat /proc/self/cpuset | sed -e 's@^/oardocker/node[[:digit:]]\\+@@'"
CPUSET_PATH="/oar"
API_ACCESS_TOKEN_EXPIRE_MINUTES="524160" # One year
"""


def test_a_file_like_the_one_that_oar_ships_is_read_with_warnings_only(conf):
    loaded = conf(LIKE_OAR_2_5)
    assert loaded.config == Config(
        db_type=DbType.POSTGRESQL,
        server_port=6666,
        oar_runtime_directory=Path("/var/lib/oar"),
        openssh_cmd=("/usr/bin/ssh", "-p", "6667"),
        scheduler_resource_order=(
            ResourceOrder("scheduler_priority"),
            ResourceOrder("state_num"),
            ResourceOrder("available_upto", descending=True),
            ResourceOrder("resource_id"),
        ),
        karma_project_targets={"first": 75.0, "default": 25.0},
        pingchecker_sentinelle_script_command=("/usr/lib/oar/sentinelle.pl", "-t", "30", "-w", "20"),
    )
    assert len(loaded.warnings) == 5


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("SCHEDULER_TIMOUT", "Did you mean SCHEDULER_TIMEOUT?"),
        ("server_port", "Did you mean SERVER_PORT?"),
        ("XYZZY", "`oarlock config` lists all settings."),
        ("A" * 5000, "`oarlock config` lists all settings."),
    ],
)
def test_a_stranger_is_refused_with_the_closest_name(conf, name, hint):
    with pytest.raises(ConfigRefused, match=rf"oar\.conf, line 2: there is no setting {name[:60]}") as refused:
        conf(f"\n{name}=1\n")
    assert refused.value.hint == hint


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("SERVER_PORT=http", "SERVER_PORT is `http`; expected a port, 1 to 65535."),
        ("SERVER_PORT=65536", "SERVER_PORT is `65536`; expected a port, 1 to 65535."),
        ("SCHEDULER_TIMEOUT=0", "SCHEDULER_TIMEOUT is `0`; expected a whole number of seconds, 1 or more."),
        ("SCHEDULER_TIMEOUT=", "SCHEDULER_TIMEOUT is ``; expected a whole number of seconds, 1 or more."),
        ("FINAUD_FREQUENCY=-1", "FINAUD_FREQUENCY is `-1`; expected a whole number of seconds, 0 or more."),
        ("FINAUD_FREQUENCY=٣", "FINAUD_FREQUENCY is `٣`; expected a whole number of seconds, 0 or more."),
        (
            "LOG_LEVEL=4",
            "LOG_LEVEL is `4`; expected 1 (what needs an administrator), 2 (also nodes and queues) or 3 (also jobs).",
        ),
        ("METRICS_NEED_TOKEN=maybe", "METRICS_NEED_TOKEN is `maybe`; expected `yes` or `no`."),
        ("OARSUB_FORCE_JOB_KEY=maybe", "OARSUB_FORCE_JOB_KEY is `maybe`; expected `yes` or `no`."),
        ("LOG_FILE=oar.log", "LOG_FILE is `oar.log`; expected an absolute path, or nothing."),
        ("NODE_ACCESS=pull", "NODE_ACCESS is `pull`; expected `push` or `installed`."),
        (
            "ALLOWED_NETWORKS=lab",
            "ALLOWED_NETWORKS is `lab`; expected networks such as 10.0.0.0/8, with blanks between.",
        ),
        (
            "KARMA_USER_TARGETS=a=101",
            "KARMA_USER_TARGETS is `a=101`; expected name=percent pairs (0 to 100) with blanks",
        ),
        ("PRIORITY_WEIGHTS='age=1 luck=2'", "PRIORITY_WEIGHTS is `age=1 luck=2`; expected name=number pairs"),
        ("KARMA_COEFF_USER_CONSUMPTION=nan", "KARMA_COEFF_USER_CONSUMPTION is `nan`; expected a number."),
        ("SCHEDULER_RESOURCE_ORDER='a; DROP'", "SCHEDULER_RESOURCE_ORDER is `a; DROP`; expected columns with commas"),
        ("OARSUB_DEFAULT_RESOURCES=' '", "OARSUB_DEFAULT_RESOURCES is ` `; expected a request as `-l` takes it."),
        ("OARSUB_NODES_RESOURCES='a b'", "OARSUB_NODES_RESOURCES is `a b`; expected the name of a property"),
        ('OPENSSH_CMD="ssh \'"', "OPENSSH_CMD is `ssh '`; expected a program and its arguments"),
    ],
)
def test_a_bad_value_is_refused_with_what_was_expected(conf, tmp_path, line, told):
    with pytest.raises(ConfigRefused) as refused:
        conf(f"# settings\n{line}\n")
    assert str(refused.value).startswith(f"{tmp_path}/oar.conf, line 2: {told}")


@pytest.mark.manual(156)
def test_mysql_is_refused_with_the_way_out(conf):
    with pytest.raises(ConfigRefused, match="DB_TYPE is `mysql`; expected `sqlite` or `Pg`") as refused:
        conf("DB_TYPE=mysql")
    assert "MySQL is not supported: use `Pg`" in refused.value.hint


def test_a_key_given_twice_is_refused_with_both_lines(conf):
    with pytest.raises(ConfigRefused, match="line 3: SERVER_PORT is already set on line 1"):
        conf("SERVER_PORT=1\n\nSERVER_PORT=1\n")


def test_a_job_is_not_given_up_before_it_is_killed(conf):
    with pytest.raises(ConfigRefused, match="given up after 10 s"):
        conf("JOBDEL_WALLTIME=10")


def test_the_named_file_wins_then_the_variable_then_the_system(tmp_path):
    paths = [tmp_path / name for name in ("named", "variable", "system")]
    for port, path in enumerate(paths, start=1):
        path.write_text(f"SERVER_PORT={port}")
    named, variable, system = paths
    environment = {"OARLOCK_CONF": str(variable)}
    assert load(named, environment=environment, system=system).config.server_port == 1
    assert load(environment=environment, system=system).config.server_port == 2
    assert load(environment={"OARLOCK_CONF": ""}, system=system) == Loaded(
        Config(server_port=3), file=system, lines={"SERVER_PORT": 1}
    )


def test_a_file_that_was_named_must_exist(tmp_path):
    gone = tmp_path / "gone.conf"
    for asked in ({"path": gone, "environment": {}}, {"environment": {"OARLOCK_CONF": str(gone)}}):
        with pytest.raises(ConfigRefused, match=r"There is no settings file .*gone\.conf"):
            load(**asked)


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    with pytest.raises(ConfigRefused, match="cannot be read: Is a directory"):
        load(tmp_path, environment={})


def test_a_file_that_everybody_can_write_is_refused(conf):
    with pytest.raises(ConfigRefused, match="can be written by everybody"):
        conf("SERVER_PORT=1", mode=0o646)


def test_a_file_that_is_not_text_is_refused(conf):
    with pytest.raises(ConfigRefused, match=r"not UTF-8 text \(byte 13\)"):
        conf(b"CLUSTER_NAME=\xff")


NOISE = st.binary() | st.text().map(str.encode)
LINES = st.lists(
    st.builds(
        "{}={}".format, st.sampled_from([*KEYS, *UNUSED, "STRANGER"]), st.text() | st.sampled_from(["1", "yes", "/x"])
    )
)


@settings(deadline=None)  # the CPU's time is what counts; a busy machine takes longer
@given(NOISE | LINES.map(lambda lines: "\n".join(lines).encode()))
def test_any_file_is_read_or_refused_and_quickly(tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / f"noise-{os.getpid()}.conf"
    path.write_bytes(content)
    path.chmod(0o600)
    # The best of three: Python may clean up its memory in the middle of any one.
    assert min(_seconds(path) for _ in range(3)) < 0.1


def _seconds(path: Path) -> float:
    before = time.process_time()
    with contextlib.suppress(OarlockError):
        load(path, environment={})
    return time.process_time() - before
