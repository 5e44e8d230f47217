"""Settings about jobs: how they are submitted, reach their nodes, run and end."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from oarlock.settings import kinds
from oarlock.settings.kinds import AfterError, EnergySplit, NodeAccess, NodeTransport, PerlRules, SettingSection

_JOBS = SettingSection("Submitting jobs")
_NODES = SettingSection("Reaching nodes")
_RUNNING = SettingSection("Running jobs")
_ENDING = SettingSection("Ending and suspending jobs")
_WALLTIME = SettingSection("Changing walltimes")
_NONE: Mapping[str, float] = MappingProxyType({"_": 0.0})  # for every queue


@dataclass(frozen=True, kw_only=True)
class JobSettings:
    """Settings about jobs: how they are submitted, reach their nodes, run and end."""

    job_min_uid: int = _JOBS(kinds.COUNT, 1000, "The lowest user id that may submit jobs; root never runs any.")
    sessions_per_user: int = _JOBS(
        kinds.COUNT, 64, "How many shells and commands in jobs (`oarsub -I`, `-C`) one user may have open or wait for."
    )
    oarsub_default_resources: str = _JOBS(kinds.REQUEST, "/resource_id=1", "What a job without `-l` asks for.")
    oarsub_nodes_resources: str = _JOBS(
        kinds.COLUMN, "network_address", "The property that `nodes` means in a request."
    )
    oarsub_force_job_key: bool = _JOBS(
        kinds.YES_NO, False, "Whether every job gets an ssh key of its own, asked for or not."
    )
    default_job_walltime: int = _JOBS(
        kinds.SOME_SECONDS, 7200, "The walltime of a job that asks for none and gets none from an admission rule."
    )
    admission_rules_dir: Path | None = _JOBS(
        kinds.PATH,
        None,
        "The folder of the site's own admission rules; a file there replaces the shipped one of the same name.",
    )
    admission_perl_rules: PerlRules = _JOBS(
        kinds.choice(PerlRules),
        PerlRules.DISABLE,
        "What becomes of Perl rules in the table that are none of the manual's examples: `disable` switches them off, "
        "`refuse` refuses every job until somebody has looked.",
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
    local_node_cmd: tuple[str, ...] = _NODES(
        kinds.COMMAND,
        ("sudo", "-n", "/usr/local/lib/oarlock/node"),
        "How a server that is not root's starts the node program of its own machine (SERVE_EVERYBODY).",
    )
    openssh_cmd: tuple[str, ...] = _NODES(kinds.COMMAND, ("ssh",), "The ssh command, with options if need be.")
    oar_ssh_connection_timeout: int = _NODES(kinds.SOME_SECONDS, 10, "How long a connection to a node may take.")
    node_connections: int = _NODES(
        kinds.whole("a whole number, 4 or more", least=4),
        1000,
        "How many nodes are connected at once. Where there are more, whoever is needed gets the connection that was "
        "not used for longest, of nodes without jobs first.",
    )
    oarsh_servers: tuple[str, ...] = _NODES(
        kinds.WORDS,
        (),
        "The servers of other clusters (`https://NAME:6680`) where `oarsh` looks for a host that is not one of the "
        "job's, for jobs with a key.",
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
    oarexec_debug_mode: bool = _RUNNING(
        kinds.YES_NO,
        False,
        "Keep a log of each job's supervisor in the spool of its node, for root: the last 200, for at most 7 days.",
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
    oarmonitor_sensor_file: Path | None = _RUNNING(
        kinds.PROGRAM,
        None,
        "A program of the site on every node whose values `oarmonitor` records beside the measured ones. Its arguments "
        "are the job and its cgroup's name; it prints `name value` lines and has 10 s.",
    )
    sample_sources: tuple[str, ...] = _RUNNING(
        kinds.SOURCES,
        (),
        "What nodes measure besides the usual, such as `rapl temperature`; a source with a `-` before it is left out. "
        "What a node does not have is not measured there.",
    )
    energy_split: EnergySplit = _RUNNING(
        kinds.choice(EnergySplit),
        EnergySplit.CORES,
        "How the energy of a node is divided: by the cores that jobs hold, or above an idle node's by their CPU time.",
    )
    energy_idle_watts: int = _RUNNING(
        kinds.WATTS, 0, "What an idle node draws: the base that `cpu` divides by cores, and for nodes without a meter."
    )
    energy_busy_watts: int = _RUNNING(
        kinds.WATTS, 0, "What a busy node without a meter draws; 0: such nodes count as not measured."
    )
    redfish_file: Path | None = _RUNNING(
        kinds.PATH,
        None,
        "A file of mode 0600 with the management controllers that the collector reads each minute: lines of node, "
        "address, user and password.",
    )
    energy_pue: float = _RUNNING(kinds.AMOUNT, 0.0, "What the site draws for each watt of a node; 0 hides the line.")
    energy_co2: float = _RUNNING(kinds.AMOUNT, 0.0, "Grams of CO2 a kWh; 0 hides the line.")
    energy_price: float = _RUNNING(kinds.AMOUNT, 0.0, "The price of a kWh; 0 hides the line.")
    energy_currency: str = _RUNNING(kinds.ANY_TEXT, "", "The currency of that price.")
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
    suspend_resume_file: Path | None = _ENDING(
        kinds.PROGRAM,
        None,
        "The site's own program on every node that suspends and resumes jobs in place of the freezer; `suspend` or "
        "`resume` is its argument, the job with its processes comes as JSON on its standard input.",
    )
    just_before_resume_exec_file: Path | None = _ENDING(
        kinds.PATH,
        None,
        "Run on the server, with the job's number, just before a job is resumed; a job for which it fails is ended.",
    )
    suspend_resume_script_timeout: int = _ENDING(kinds.SOME_SECONDS, 60, "How long each of them may take.")

    walltime_change_enabled: bool = _WALLTIME(
        kinds.YES_NO, False, "Let users change the walltime of their running jobs with `oarwalltime`."
    )
    walltime_max_increase: Mapping[str, float] = _WALLTIME(
        kinds.BY_QUEUE,
        _NONE,
        "By how many seconds a walltime may increase in all; below 1, a share of the walltime; -1: without limit.",
    )
    walltime_min_for_change: Mapping[str, float] = _WALLTIME(
        kinds.BY_QUEUE, _NONE, "The shortest walltime, in seconds, that may be increased."
    )
    walltime_change_apply_time: Mapping[str, float] = _WALLTIME(
        kinds.BY_QUEUE,
        _NONE,
        "How many seconds before its end a job gets its increase (below 1: a share of the walltime); 0: at once.",
    )
    walltime_increment: Mapping[str, float] = _WALLTIME(
        kinds.BY_QUEUE,
        _NONE,
        "In steps of how many seconds an increase is granted (below 1: a share of the walltime); 0: all of it.",
    )
    walltime_allowed_users_to_force: tuple[str, ...] = _WALLTIME(
        kinds.WORDS,
        (),
        "Who may have a change applied at once and whole (`oarwalltime --force`): users, groups (`@staff`), or `*`.",
    )
    walltime_allowed_users_to_delay_jobs: tuple[str, ...] = _WALLTIME(
        kinds.WORDS,
        (),
        "Who may delay planned jobs of others (`oarwalltime --delay-next-jobs`); reservations are never delayed.",
    )


_STAGING = SettingSection("Files that travel with jobs")
_DESKTOPS = SettingSection("Desktop computing")
_HOURS = kinds.whole("a number of hours, 1 at least", least=1, most=100_000)
_MIB = kinds.whole("a number of MiB, 1 at least", least=1, most=10_000_000)


@dataclass(frozen=True, kw_only=True)
class StagingSettings:
    """Settings about files that travel with jobs, and about machines that fetch their jobs themselves."""

    stagein_dir: Path | None = _STAGING(
        kinds.PATH,
        None,
        "Where the server keeps the archives of `oarsub -s`; nothing means `stageins` in its state directory. Only the "
        "server's own account can enter it.",
    )
    stagein_cache_expiry: int = _STAGING(
        _HOURS,
        144,
        "The hours for which an archive is kept after its last use, on the server and on nodes; never while a job "
        "waits for it.",
    )
    stagein_max_size: int = _STAGING(_MIB, 1024, "The MiB that one archive may have.")
    stagein_max_unpacked: int = _STAGING(_MIB, 4096, "The MiB that one archive may unpack to.")
    stagein_max_per_user: int = _STAGING(_MIB, 10_240, "The MiB that all archives of one user may have together.")
    stagein_timeout: int = _STAGING(
        kinds.SOME_SECONDS, 600, "How long it may take to unpack an archive on a node before its job ends."
    )
    stageout_dir: Path | None = _STAGING(
        kinds.PATH,
        None,
        "Where the server keeps what jobs wrote on desktops, as `JOB.tgz`, which only the job's user can read; nothing "
        "means `stageouts` in its state directory.",
    )
    stageout_max_size: int = _STAGING(_MIB, 1024, "The MiB of files that are brought back for one job.")
    stageout_timeout: int = _STAGING(
        kinds.SOME_SECONDS,
        3600,
        "How long it may take to pack what a job wrote, and again to bring it back, before its job ends without.",
    )
    stageout_expiry: int = _STAGING(_HOURS, 720, "The hours after which what was brought back is removed.")
    desktop_computing_allow_create_node: bool = _DESKTOPS(
        kinds.YES_NO,
        False,
        "Whether a desktop with a token whose node is not there yet is added to the resources when it connects.",
    )
    desktop_computing_expiry: int = _DESKTOPS(
        kinds.SOME_SECONDS,
        10,
        "The seconds after which a desktop that lost its connection is Suspected (`expiry_date` of its resources).",
    )
