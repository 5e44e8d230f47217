"""Settings of the scheduler, of fair sharing and priorities, and of nodes: their health and their sleep."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from oarlock.model.resource import DEFAULT_ORDER, ResourceOrder
from oarlock.settings import kinds
from oarlock.settings.kinds import KeepAwake, SettingSection, UnknownAttempts

_HEALTH = SettingSection("Health of nodes")
_SCHEDULER = SettingSection("Scheduler")
_KARMA = SettingSection("Fair sharing")
_PRIORITY = SettingSection("Multi-factor priority")
_ENERGY = SettingSection("Saving energy")
_NO_PAIRS: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class SchedulerSettings:
    """Settings of the scheduler, of fair sharing and priorities, and of nodes: their health and their sleep."""

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
    pingchecker_taktuk_arg_command: tuple[str, ...] = _HEALTH(
        kinds.COMMAND,
        (),
        "Check nodes with taktuk instead of the server's own connections, where it is installed: its arguments, which "
        "end with a command; a node answers if that ends with 0. Without `-o`, `-c` and `-f`, which are added.",
    )
    taktuk_cmd: tuple[str, ...] = _HEALTH(kinds.COMMAND, ("taktuk",), "Taktuk, for that check alone.")
    pingchecker_sentinelle_script_command: tuple[str, ...] = _HEALTH(
        kinds.COMMAND,
        (),
        "Check nodes with OAR's sentinelle.pl instead, where it is installed; `-c`, OPENSSH_CMD and `-f -` are added.",
    )
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

    suspected_healing_exec_file: Path | None = _HEALTH(
        kinds.PATH,
        None,
        "A program of the site that runs on the server once for each node that became Suspected, to repair it. On its "
        "standard input, a line for each resource: its number, a blank, the node.",
    )
    suspected_healing_timeout: int = _HEALTH(kinds.SOME_SECONDS, 10, "How long that program may take.")
    suspected_healing_limit: int = _HEALTH(
        kinds.COUNT, 3, "How often in 24 hours it runs for the same node; 0 is each time that the node is suspected."
    )

    scheduler_timeout: int = _SCHEDULER(
        kinds.SOME_SECONDS, 10, "How long one planning pass, and a site's own scheduler, may take."
    )
    scheduler_program_dir: Path | None = _SCHEDULER(
        kinds.PATH,
        Path("/etc/oarlock/schedulers"),
        "The folder of the site's own schedulers; the policy of a queue may be the name of a program there.",
    )
    scheduler_job_security_time: int = _SCHEDULER(kinds.SECONDS, 1, "The time left free between two jobs.")
    scheduler_gantt_hole_minimum_time: int = _SCHEDULER(
        kinds.SECONDS, 0, "Free time shorter than this is not filled; the default fills all (the manual shows 300)."
    )
    scheduler_resource_order: tuple[ResourceOrder, ...] = _SCHEDULER(
        kinds.ORDER, DEFAULT_ORDER, "Which resources are preferred: the first columns matter most."
    )
    scheduler_priority_hierarchy_order: tuple[str, ...] = _SCHEDULER(
        kinds.LEVELS,
        ("network_address", "resource_id"),
        "Where best-effort and timesharing jobs count in `scheduler_priority`: on all resources with the same value of "
        "these properties, each one more than the one before. Empty: nowhere.",
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
    scheduler_node_manager_keep_awake: tuple[KeepAwake, ...] = _ENERGY(
        kinds.KEEP_AWAKE,
        (),
        "How many idle nodes stay awake, of all nodes or of classes of them; where fewer are idle, others are woken.",
    )
    scheduler_node_manager_window_size: int = _ENERGY(
        kinds.COUNT, 0, "How many nodes are put to sleep or woken by one run of the command; 0 is all at once."
    )
    scheduler_node_manager_window_time: int = _ENERGY(kinds.SECONDS, 0, "The time between two such runs.")
    scheduler_node_manager_timeout: int = _ENERGY(kinds.SOME_SECONDS, 120, "How long one run of a command may take.")
    scheduler_node_manager_idle_time: int = _ENERGY(kinds.SECONDS, 600, "How long a node must have been idle to sleep.")
    scheduler_node_manager_sleep_time: int = _ENERGY(kinds.SECONDS, 600, "How long a node must be able to sleep.")
    scheduler_node_manager_wakeup_time: int = _ENERGY(
        kinds.SECONDS,
        600,
        "How long before a job its sleeping nodes are woken.",
    )
    scheduler_node_manager_wakeup_timeout: tuple[tuple[int, int], ...] = _ENERGY(
        kinds.BY_COUNT,
        (),
        "How long woken nodes may take to answer before they are Suspected; nothing means WAKEUP_TIME. Pairs say from "
        "how many nodes on it is how long.",
    )
