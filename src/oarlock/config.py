"""Every setting: its name, type, default and one sentence; and how a settings file is found and read.

The file is the manual's bash-compatible `oar.conf`; no file is needed to start. Keys and fields have the same names:
`SCHEDULER_TIMEOUT` is `config.scheduler_timeout`. Only the server reads this; commands need nothing but its socket.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any

from oarlock.model.errors import ConfigRefused
from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder
from oarlock.settings import kinds
from oarlock.settings import reader as settings_reader
from oarlock.settings.kinds import Network, SettingKind, SettingSection
from oarlock.settings.secret import Secret

SYSTEM_FILE = Path("/etc/oarlock/oar.conf")
VARIABLE = "OARLOCK_CONF"


class DbType(StrEnum):
    """The database engines; the manual's spelling."""

    SQLITE = "sqlite"
    POSTGRESQL = "Pg"


class NodeTransport(StrEnum):
    """How a node is reached."""

    AUTO = "auto"  # this host's own names behind a pipe, all others by ssh
    SSH = "ssh"
    LOCAL = "local"  # every node name is this machine


class NodeAccess(StrEnum):
    """How the node program gets to a node."""

    PUSH = "push"  # it travels at each connection
    INSTALLED = "installed"  # the site installed it; a forced command starts it


class UnknownAttempts(StrEnum):
    """What becomes of jobs that nodes run and that a restored or new database does not know."""

    HOLD = "hold"  # their resources are held until they end
    END = "end"


class AfterError(StrEnum):
    """What becomes of jobs that depend on a job in Error."""

    RELEASE = "release"
    HOLD = "hold"


_DATABASE = SettingSection("Database")
_SERVER = SettingSection("Server")
_JOBS = SettingSection("Submitting jobs")
_NODES = SettingSection("Reaching nodes")
_RUNNING = SettingSection("Running jobs")
_ENDING = SettingSection("Ending and suspending jobs")
_HEALTH = SettingSection("Health of nodes")
_SCHEDULER = SettingSection("Scheduler")
_KARMA = SettingSection("Fair sharing")
_PRIORITY = SettingSection("Multi-factor priority")
_ENERGY = SettingSection("Saving energy")
_TELLING = SettingSection("Log, mail and accounting")

_DB_TYPE = kinds.choice(
    DbType, mysql="MySQL is not supported: use `Pg` (PostgreSQL) for a site, or `sqlite`, which needs no server."
)
_NO_PAIRS: Mapping[str, float] = MappingProxyType({})
_LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings, with a default for each; sentences go to the reference page."""

    db_type: DbType = _DATABASE(
        _DB_TYPE, DbType.SQLITE, "The engine: a file in the state directory, or PostgreSQL for a site."
    )
    db_hostname: str = _DATABASE(kinds.WORD, "localhost", "Where PostgreSQL runs: a host, or the folder of its socket.")
    db_port: int = _DATABASE(kinds.PORT, 5432, "The port of PostgreSQL.")
    db_base_name: str = _DATABASE(kinds.WORD, "oar", "The name of the database in PostgreSQL.")
    db_base_login: str = _DATABASE(kinds.WORD, "oar", "The account that reads and writes.")
    db_base_passwd: Secret | None = _DATABASE(kinds.SECRET, None, "Its password, if it needs one.")
    db_base_login_ro: str = _DATABASE(kinds.WORD, "oar_ro", "The account that only reads, and cannot read secrets.")
    db_base_passwd_ro: Secret | None = _DATABASE(
        kinds.SECRET, None, "Its password; where it is set, the server makes the account at each start."
    )

    cluster_name: str = _SERVER(kinds.WORD, "cluster", "The name of the cluster: a label on every metric.")
    server_hostname: str = _SERVER(kinds.WORD, "localhost", "The address on which the portal and the API listen.")
    server_port: int = _SERVER(kinds.PORT, 6680, "The port of the portal and the API.")
    allowed_networks: tuple[Network, ...] = _SERVER(
        kinds.NETWORKS, _LOOPBACK, "Who may talk to that port; everybody else is turned away."
    )
    metrics_need_token: bool = _SERVER(
        kinds.YES_NO, False, "Whether /metrics is refused to those who may talk to that port but say no name."
    )
    admins: tuple[str, ...] = _SERVER(
        kinds.WORDS, (), "Users who administer; nothing means root and the user that the server runs as."
    )

    job_min_uid: int = _JOBS(kinds.COUNT, 1000, "The lowest user id that may submit jobs; root never runs any.")
    oarsub_default_resources: str = _JOBS(kinds.REQUEST, "/resource_id=1", "What a job without `-l` asks for.")
    oarsub_nodes_resources: str = _JOBS(
        kinds.COLUMN, "network_address", "The property that `nodes` means in a request."
    )
    oarsub_force_job_key: bool = _JOBS(
        kinds.NOT_YET,
        False,
        "Whether every job gets an ssh key of its own, asked for or not; job keys are not here yet.",
    )
    default_job_walltime: int = _JOBS(
        kinds.SOME_SECONDS, 7200, "The walltime of a job that asks for none and gets none from an admission rule."
    )
    admission_rules_dir: Path | None = _JOBS(
        kinds.PATH,
        None,
        "The folder of the site's own admission rules; a file there replaces the shipped one of the same name.",
    )
    dependency_after_error: AfterError = _JOBS(
        kinds.choice(AfterError), AfterError.RELEASE, "Whether a job in Error releases the jobs that depend on it."
    )
    users_allowed_hold_resume: bool = _JOBS(
        kinds.YES_NO, False, "Let users suspend and resume their own running jobs, not only administrators."
    )

    node_transport: NodeTransport = _NODES(
        kinds.choice(NodeTransport),
        NodeTransport.AUTO,
        "How nodes are reached: `auto` is a pipe to this very host and ssh to all others; with `local` every node "
        "name is this machine.",
    )
    node_access: NodeAccess = _NODES(
        kinds.choice(NodeAccess),
        NodeAccess.PUSH,
        "Whether the node program travels at each connection (`push`, needs a root key) or was installed by the site.",
    )
    openssh_cmd: tuple[str, ...] = _NODES(kinds.COMMAND, ("ssh",), "The ssh command, with options if need be.")
    oar_ssh_connection_timeout: int = _NODES(kinds.SOME_SECONDS, 10, "How long a connection to a node may take.")
    oarsh_openssh_default_options: tuple[str, ...] = _NODES(
        kinds.COMMAND, ("-oProxyCommand=none", "-oPermitLocalCommand=no"), "Options that `oarsh` always gives to ssh."
    )
    deploy_hostname: str = _NODES(
        kinds.PERHAPS_WORD, "", "Where jobs of type deploy run their command; nothing: there are no such jobs."
    )
    cosystem_hostname: str = _NODES(
        kinds.PERHAPS_WORD, "", "Where jobs of type cosystem run their command; nothing: there are no such jobs."
    )
    frontend_users: tuple[str, ...] = _NODES(
        kinds.WORDS,
        ("*",),
        "Who may submit jobs of types deploy and cosystem: users, groups (`@staff`), or `*` for everybody.",
    )
    frontend_job_memory: int = _NODES(
        kinds.COUNT, 2048, "How much memory each of them has there, in MB (2^20 bytes); 0: no limit."
    )
    frontend_job_processes: int = _NODES(kinds.COUNT, 512, "How many processes each of them has there; 0: no limit.")
    notify_hostname: str = _NODES(
        kinds.WORD, "127.0.0.1", "Where users submit: there the programs of `oarsub --notify exec:` run, as the user."
    )

    oar_runtime_directory: Path | None = _RUNNING(
        kinds.PATH, None, "Where the node program keeps its files on every node; nothing leaves the choice to it."
    )
    job_resource_manager_property_db_field: str = _RUNNING(
        kinds.COLUMN, "cpuset", "The property that holds a resource's CPU numbers on its node."
    )
    job_resource_manager_file: Path | None = _RUNNING(
        kinds.PROGRAM,
        None,
        "The site's own program on every node that takes the place of the cgroup step; `init`, `freeze`, `thaw` or "
        "`clean` is its argument, the job comes as JSON on its standard input.",
    )
    job_memory_limit: bool = _RUNNING(
        kinds.YES_NO,
        True,
        "Whether a job without JOB_MEMORY_PROPERTY may use only its share of each node's memory: 2 of 8 resources, a "
        "quarter of it. With `no` only that property limits.",
    )
    job_memory_property: str = _RUNNING(
        kinds.PERHAPS_COLUMN,
        "",
        "The property that holds how much memory goes with a resource, in MB (2^20 bytes): a job may use the sum of "
        "its resources on each node. Nothing, or a resource without a value: see JOB_MEMORY_LIMIT.",
    )
    job_gpu_property: str = _RUNNING(
        kinds.PERHAPS_COLUMN,
        "gpudevice",
        "The property that holds the number of a resource's GPU on its node; a job may use the GPUs of its resources "
        "and none of the others there.",
    )
    job_gpu_device: str = _RUNNING(
        kinds.matching("an absolute path with %gpu% in it", r"/\S*%gpu%\S*"),
        "/dev/nvidia%gpu%",
        "The device file of a GPU, with its number in the place of %gpu%.",
    )
    node_file_db_field: str = _RUNNING(kinds.COLUMN, "network_address", "The property written to $OAR_NODE_FILE.")
    node_file_db_field_distinct_values: str = _RUNNING(
        kinds.COLUMN, "cpu", "The property of which each different value makes a line of $OAR_NODE_FILE."
    )
    prologue_exec_file: Path | None = _RUNNING(kinds.PATH, None, "Run on the first node before each job.")
    epilogue_exec_file: Path | None = _RUNNING(kinds.PATH, None, "Run on the first node after each job.")
    prologue_epilogue_timeout: int = _RUNNING(kinds.SOME_SECONDS, 60, "How long each of them may take.")
    server_prologue_exec_file: Path | None = _RUNNING(kinds.PATH, None, "Run on the server before each job.")
    server_epilogue_exec_file: Path | None = _RUNNING(kinds.PATH, None, "Run on the server after each job.")
    server_prologue_epilogue_timeout: int = _RUNNING(kinds.SOME_SECONDS, 60, "How long each of them may take.")
    watch_frequency: int = _RUNNING(
        kinds.SOME_SECONDS, 10, "The time between two looks at walltimes, checkpoints and kills under way."
    )
    sample_period: int = _RUNNING(
        kinds.SECONDS, 10, "The time between two measurements of the jobs on a node; 0 measures only at their end."
    )
    lease_grace: int = _RUNNING(
        kinds.SECONDS, 120, "How long after its walltime a job on an unreachable node is certainly over."
    )

    jobdel_softwalltime: int = _ENDING(kinds.SECONDS, 20, "The time between TERM and KILL when a job has to end.")
    jobdel_walltime: int = _ENDING(
        kinds.SOME_SECONDS, 300, "When a job that does not end is given up and its nodes become Suspected."
    )
    just_after_suspend_exec_file: Path | None = _ENDING(
        kinds.PATH,
        None,
        "Run on the server, with the job's number, just after a job was suspended; a job for which it fails is ended.",
    )
    just_before_resume_exec_file: Path | None = _ENDING(
        kinds.PATH,
        None,
        "Run on the server, with the job's number, just before a job is resumed; a job for which it fails is ended.",
    )
    suspend_resume_script_timeout: int = _ENDING(kinds.SOME_SECONDS, 60, "How long each of them may take.")

    restore_unknown_attempts: UnknownAttempts = _HEALTH(
        kinds.choice(UnknownAttempts),
        UnknownAttempts.HOLD,
        "What becomes of jobs that nodes run and that a restored or new database does not know: `hold` holds their "
        "resources until they end or an administrator ends them (`oarlock unknown`), `end` ends them.",
    )
    finaud_frequency: int = _HEALTH(kinds.SECONDS, 300, "The time between two checks of all nodes; 0 is never.")
    dead_switch_time: int = _HEALTH(
        kinds.SECONDS, 0, "After how long a Suspected or Absent resource becomes Dead; 0 is never."
    )
    check_nodes_with_running_job: bool = _HEALTH(kinds.YES_NO, False, "Check nodes that run jobs, too.")
    activate_pingchecker_at_job_end: bool = _HEALTH(kinds.YES_NO, False, "Check a job's nodes when it ends.")
    pingchecker_fping_command: tuple[str, ...] = _HEALTH(
        kinds.COMMAND,
        (),
        "Check nodes with fping instead of the server's own connections; `-a` and their names are added.",
    )
    pingchecker_nmap_command: tuple[str, ...] = _HEALTH(
        kinds.COMMAND, (), "Check nodes with nmap instead: one answers if a port is open. Their names are added."
    )
    pingchecker_generic_command: tuple[str, ...] = _HEALTH(
        kinds.COMMAND,
        (),
        "Check nodes with the site's own program instead. Their names are added; it names bad ones on its standard "
        "error, one a line.",
    )

    scheduler_timeout: int = _SCHEDULER(kinds.SOME_SECONDS, 10, "How long one planning pass may take.")
    scheduler_job_security_time: int = _SCHEDULER(kinds.SECONDS, 1, "The time left free between two jobs.")
    scheduler_gantt_hole_minimum_time: int = _SCHEDULER(
        kinds.SECONDS, 0, "Free time shorter than this is not filled; the default fills all (the manual shows 300)."
    )
    scheduler_resource_order: tuple[ResourceOrder, ...] = _SCHEDULER(
        kinds.ORDER, DEFAULT_ORDER, "Which resources are preferred: the first columns matter most."
    )
    plan_depth: int = _SCHEDULER(
        kinds.COUNT, 0, "How many waiting jobs of a queue get an exact place in the plan; 0 is all of them."
    )
    reservation_waiting_resources_timeout: int = _SCHEDULER(
        kinds.SECONDS, 300, "How long a reservation waits for missing resources before it starts without them."
    )
    scheduler_besteffort_kill_duration_before_reservation: int = _SCHEDULER(
        kinds.SECONDS, 0, "How long before a reservation the best-effort jobs on its resources are ended."
    )
    scheduler_resources_always_assigned_type: tuple[str, ...] = _SCHEDULER(
        kinds.WORDS, (), "Types of resources that every job gets besides its own."
    )
    scheduler_available_suspended_resource_type: tuple[str, ...] = _SCHEDULER(
        kinds.WORDS, (), "Types of resources that others may use while the job on them is suspended."
    )
    quotas: bool = _SCHEDULER(kinds.YES_NO, False, "Whether the quotas of QUOTAS_CONF_FILE hold.")
    quotas_conf_file: Path | None = _SCHEDULER(
        kinds.PATH,
        None,
        "The file of quotas (JSON, as OAR 3 has it): how much users, projects and queues have at once.",
    )

    karma_max_jobs: int = _KARMA(kinds.COUNT, 1000, "How many waiting jobs of a queue are ordered by karma.")
    karma_window: int = _KARMA(kinds.SOME_SECONDS, 108000, "How far back consumption counts.")
    karma_project_targets: Mapping[str, float] = _KARMA(
        kinds.TARGETS, _NO_PAIRS, "The share each project should have, in percent; others have 0."
    )
    karma_user_targets: Mapping[str, float] = _KARMA(
        kinds.TARGETS, _NO_PAIRS, "The share each user should have, in percent; others have 0."
    )
    karma_coeff_project_consumption: float = _KARMA(kinds.NUMBER, 3.0, "The weight of what the project used.")
    karma_coeff_user_consumption: float = _KARMA(kinds.NUMBER, 2.0, "The weight of what the user used.")
    karma_coeff_user_asked_consumption: float = _KARMA(kinds.NUMBER, 1.0, "The weight of what the user asked for.")

    priority_weights: Mapping[str, float] = _PRIORITY(
        kinds.numbers("age", "share", "size", "slowdown", "qos", "project"), _NO_PAIRS,
        "What weighs how much in `multifactor` queues. Those not named: age, share, qos and project 1, the others 0.",
    )  # fmt: skip
    priority_age_limit: int = _PRIORITY(kinds.SOME_SECONDS, 604800, "After how long waiting longer adds nothing.")
    priority_half_life: int = _PRIORITY(kinds.SOME_SECONDS, 604800, "What was used so long ago counts half.")
    priority_qos: Mapping[str, float] = _PRIORITY(kinds.TARGETS, _NO_PAIRS, "What job types `qos=NAME` are worth (%).")
    priority_projects: Mapping[str, float] = _PRIORITY(kinds.TARGETS, _NO_PAIRS, "What projects are worth, in percent.")

    scheduler_node_manager_wake_up_cmd: tuple[str, ...] = _ENERGY(
        kinds.COMMAND, (), "Wakes nodes; their names come on its standard input, one a line."
    )
    scheduler_node_manager_sleep_cmd: tuple[str, ...] = _ENERGY(
        kinds.COMMAND,
        (),
        "Puts nodes to sleep; their names come on its standard input, one a line. Only nodes with a date in "
        "cm_availability take part.",
    )
    scheduler_pack_nodes: bool = _ENERGY(kinds.YES_NO, False, "Fill nodes that have jobs first; idle ones can sleep.")
    scheduler_node_manager_keep_awake: int = _ENERGY(kinds.COUNT, 0, "How many idle nodes are never put to sleep.")
    scheduler_node_manager_idle_time: int = _ENERGY(kinds.SECONDS, 600, "How long a node must have been idle to sleep.")
    scheduler_node_manager_sleep_time: int = _ENERGY(kinds.SECONDS, 600, "How long a node must be able to sleep.")
    scheduler_node_manager_wakeup_time: int = _ENERGY(
        kinds.SECONDS,
        600,
        "How long before a job its sleeping nodes are woken, and how long they may take to answer before they are "
        "Suspected.",
    )

    log_level: int = _TELLING(kinds.LEVEL, 3, "How much is logged; each level includes the ones before it.")
    log_file: Path | None = _TELLING(kinds.PATH, None, "Where the log goes; nothing means standard error.")
    mail_smtp_server: str = _TELLING(kinds.ANY_TEXT, "", "The mail server; nothing means that no mail is sent.")
    mail_recipient: tuple[str, ...] = _TELLING(kinds.ADDRESSES, (), "Who is told about trouble.")
    mail_sender: str = _TELLING(kinds.ANY_TEXT, "", "The sender of mails.")
    accounting_window: int = _TELLING(kinds.SOME_SECONDS, 86400, "The length of a row of the accounting table.")


@dataclass(frozen=True, slots=True)
class Key:
    """A setting, as the file, the reference page and `oarlock config` name it."""

    name: str
    section: str
    kind: SettingKind[Any]
    default: Any
    says: str

    def value(self, config: Config) -> Any:
        """Return the value that a configuration has for it."""
        return getattr(config, self.name.lower())

    def shown(self, config: Config) -> str:
        """Return that value as the file would have it; a secret stays hidden."""
        return self.kind.show(self.value(config))


KEYS: Mapping[str, Key] = {
    setting.name.upper(): Key(name=setting.name.upper(), **setting.metadata) for setting in fields(Config)
}


@dataclass(frozen=True, slots=True)
class Loaded:
    """Settings as they are in effect: from which file, on which line each, and what has no effect."""

    config: Config
    warnings: tuple[str, ...] = ()
    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict)


def load(
    path: Path | None = None, *, environment: Mapping[str, str] = os.environ, system: Path = SYSTEM_FILE
) -> Loaded:
    """Find and read the settings: `path`, else `$OARLOCK_CONF`, else the system's file, else defaults.

    A file that was named must exist. `ConfigRefused` and `SecretExposed` say what to do.
    """
    named = path or (Path(environment[VARIABLE]) if environment.get(VARIABLE) else None)
    file = named or system
    try:
        loaded_file = settings_reader.read(file, {name: key.kind for name, key in KEYS.items()})
    except FileNotFoundError as problem:
        if named is None:
            return Loaded(Config())
        raise ConfigRefused(
            f"There is no settings file {file}.", hint="Name another, or none for defaults."
        ) from problem
    config = Config(**{key.lower(): value for key, value in loaded_file.values.items()})
    _check_together(config, file)
    return Loaded(config, loaded_file.warnings, file, loaded_file.lines)


def _check_together(config: Config, file: Path) -> None:
    """Refuse values that are good alone and bad together."""
    if config.jobdel_walltime <= config.jobdel_softwalltime:
        raise ConfigRefused(
            f"{file}: a job would be given up after {config.jobdel_walltime} s (JOBDEL_WALLTIME), before it is killed "
            f"after {config.jobdel_softwalltime} s (JOBDEL_SOFTWALLTIME).",
            hint="Make JOBDEL_WALLTIME the longer one.",
        )
