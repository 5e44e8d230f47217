"""Events: everything noteworthy that happened to a job or a node, as the manual names it.

The table says what each one means and what follows from it: whether somebody must still look (`to_check`), what
the job becomes, which nodes are suspected, whether a copy of the job may be submitted.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from oarlock.model.job import JobState


class Suspects(StrEnum):
    """Which nodes an event makes Suspected."""

    NONE = "none"
    FIRST = "first"  # the first node of the job
    NAMED = "named"  # the nodes that the event names
    JOB = "job"  # every node of the job


class Blame(StrEnum):
    """Whose fault an event is. Only the node's own faults suspect it at once.

    What a user or an account can cause never does, unless jobs of several users fail there one after the other
    (`job/blame.py`).
    """

    NODE = "node"
    UNCLEAR = "unclear"  # the node or the job: administrators are told
    USER = "user"  # the job, its user or the account
    SITE = "site"  # a program of the site, which would fail everywhere: the queues stop


class EventType(StrEnum):
    """The manual's event types, then those that OAR writes without listing them, then ours."""

    PING_CHECKER_NODE_SUSPECTED = "PING_CHECKER_NODE_SUSPECTED"
    PROLOGUE_ERROR = "PROLOGUE_ERROR"
    EPILOGUE_ERROR = "EPILOGUE_ERROR"
    CANNOT_CREATE_TMP_DIRECTORY = "CANNOT_CREATE_TMP_DIRECTORY"
    CAN_NOT_WRITE_NODE_FILE = "CAN_NOT_WRITE_NODE_FILE"
    CAN_NOT_WRITE_PID_FILE = "CAN_NOT_WRITE_PID_FILE"
    USER_SHELL = "USER_SHELL"
    USER_UNKNOWN = "USER_UNKNOWN"
    EXIT_VALUE_OAREXEC = "EXIT_VALUE_OAREXEC"
    SEND_KILL_JOB = "SEND_KILL_JOB"
    LEON_KILL_BIPBIP_TIMEOUT = "LEON_KILL_BIPBIP_TIMEOUT"
    EXTERMINATE_JOB = "EXTERMINATE_JOB"
    WORKING_DIRECTORY = "WORKING_DIRECTORY"
    OUTPUT_FILES = "OUTPUT_FILES"
    CANNOT_NOTIFY_OARSUB = "CANNOT_NOTIFY_OARSUB"
    WALLTIME = "WALLTIME"
    SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION = "SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION"
    BESTEFFORT_KILL = "BESTEFFORT_KILL"
    FRAG_JOB_REQUEST = "FRAG_JOB_REQUEST"
    CHECKPOINT = "CHECKPOINT"
    CHECKPOINT_ERROR = "CHECKPOINT_ERROR"
    CHECKPOINT_SUCCESS = "CHECKPOINT_SUCCESS"
    SERVER_EPILOGUE_TIMEOUT = "SERVER_EPILOGUE_TIMEOUT"
    SERVER_EPILOGUE_EXIT_CODE_ERROR = "SERVER_EPILOGUE_EXIT_CODE_ERROR"
    SERVER_EPILOGUE_ERROR = "SERVER_EPILOGUE_ERROR"
    SERVER_PROLOGUE_TIMEOUT = "SERVER_PROLOGUE_TIMEOUT"
    SERVER_PROLOGUE_EXIT_CODE_ERROR = "SERVER_PROLOGUE_EXIT_CODE_ERROR"
    SERVER_PROLOGUE_ERROR = "SERVER_PROLOGUE_ERROR"
    CPUSET_CLEAN_ERROR = "CPUSET_CLEAN_ERROR"
    MAIL_NOTIFICATION_ERROR = "MAIL_NOTIFICATION_ERROR"
    USER_MAIL_NOTIFICATION = "USER_MAIL_NOTIFICATION"
    USER_EXEC_NOTIFICATION_ERROR = "USER_EXEC_NOTIFICATION_ERROR"
    BIPBIP_BAD_JOBID = "BIPBIP_BAD_JOBID"
    BIPBIP_CHALLENGE = "BIPBIP_CHALLENGE"
    RESUBMIT_JOB_AUTOMATICALLY = "RESUBMIT_JOB_AUTOMATICALLY"
    REDUCE_RESERVATION_WALLTIME = "REDUCE_RESERVATION_WALLTIME"
    SSH_TRANSFER_TIMEOUT = "SSH_TRANSFER_TIMEOUT"
    BAD_HASHTABLE_DUMP = "BAD_HASHTABLE_DUMP"
    LAUNCHING_OAREXEC_TIMEOUT = "LAUNCHING_OAREXEC_TIMEOUT"
    RESERVATION_NO_NODE = "RESERVATION_NO_NODE"

    CPUSET_ERROR = "CPUSET_ERROR"
    SUSPEND_ERROR = "SUSPEND_ERROR"
    RESUME_ERROR = "RESUME_ERROR"
    PING_CHECKER_NODE_SUSPECTED_END_JOB = "PING_CHECKER_NODE_SUSPECTED_END_JOB"
    SWITCH_INTO_TERMINATE_STATE = "SWITCH_INTO_TERMINATE_STATE"
    SWITCH_INTO_ERROR_STATE = "SWITCH_INTO_ERROR_STATE"
    HOLD_WAITING_JOB = "HOLD_WAITING_JOB"
    HOLD_RUNNING_JOB = "HOLD_RUNNING_JOB"
    RESUME_JOB = "RESUME_JOB"
    ADD_BESTEFFORT_JOB_TYPE = "ADD_BESTEFFORT_JOB_TYPE"
    DELETE_BESTEFFORT_JOB_TYPE = "DELETE_BESTEFFORT_JOB_TYPE"

    ADMISSION_RULE_ERROR = "ADMISSION_RULE_ERROR"
    CLOCK_JUMP = "CLOCK_JUMP"
    SCHEDULER_JOB_SET_ASIDE = "SCHEDULER_JOB_SET_ASIDE"
    SITE_SCHEDULER_ERROR = "SITE_SCHEDULER_ERROR"
    NODE_FAILS_SEVERAL_USERS = "NODE_FAILS_SEVERAL_USERS"
    USER_LOOKUP_ERROR = "USER_LOOKUP_ERROR"
    NODE_CLOCK_WRONG = "NODE_CLOCK_WRONG"
    LOG_SUSPECTED = "LOG_SUSPECTED"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    NODE_HEALING = "NODE_HEALING"
    NODE_HEALING_ERROR = "NODE_HEALING_ERROR"
    JOB_KEY_LOST = "JOB_KEY_LOST"
    QUEUES_STOPPED = "QUEUES_STOPPED"
    QUEUES_STARTED = "QUEUES_STARTED"
    NEW_GENERATION = "NEW_GENERATION"
    UNKNOWN_JOB_FOUND = "UNKNOWN_JOB_FOUND"
    UNKNOWN_JOB_ENDED = "UNKNOWN_JOB_ENDED"
    ARCHIVE_SHORT_OF_ROOM = "ARCHIVE_SHORT_OF_ROOM"
    MEASUREMENTS_NOT_KEPT = "MEASUREMENTS_NOT_KEPT"
    STAGE_IN_ERROR = "STAGE_IN_ERROR"
    STAGE_OUT_ERROR = "STAGE_OUT_ERROR"
    ACCOUNTING_REPAIRED = "ACCOUNTING_REPAIRED"
    DESKTOP_LEFT = "DESKTOP_LEFT"
    IDLE_JOB_WARNED = "IDLE_JOB_WARNED"
    IDLE_JOB_ENDED = "IDLE_JOB_ENDED"


OLD_SPELLINGS: Mapping[str, EventType] = {
    "CANNOT_WRITE_NODE_FILE": EventType.CAN_NOT_WRITE_NODE_FILE,
    "CANNOT_WRITE_PID_FILE": EventType.CAN_NOT_WRITE_PID_FILE,
    "CHECKPOINT_SUCCESSFULL": EventType.CHECKPOINT_SUCCESS,
    "CHECKPOINT_SUCCESSFUL": EventType.CHECKPOINT_SUCCESS,
}
"""How OAR 2.5 spells some of them; understood in queries, never written."""


@dataclass(frozen=True, slots=True)
class Meaning:
    """What an event says, and what follows from it.

    `to_check`: it is written with to_check = YES, because nodes or the job's state still have to follow.
    `becomes`: the state the job ends in because of it. `copy`: a copy of the job may be submitted.
    `suspects`: the nodes concerned; whether they become Suspected depends on `blame`.
    `stops_queues`: nothing is started any more until an administrator has looked.
    """

    says: str
    to_check: bool = False
    becomes: JobState | None = None
    suspects: Suspects = Suspects.NONE
    blame: Blame = Blame.NODE
    copy: bool = False
    stops_queues: bool = False


_E, _T = JobState.ERROR, JobState.TERMINATED


def _note(says: str) -> Meaning:
    return Meaning(says)


def _lost_launch(says: str, suspects: Suspects, *, blame: Blame = Blame.NODE, copy: bool = True) -> Meaning:
    return Meaning(says, to_check=True, becomes=_E, suspects=suspects, blame=blame, copy=copy)


def _users_fault(says: str) -> Meaning:
    return Meaning(says, to_check=True, suspects=Suspects.FIRST, blame=Blame.USER)


def _stop_all(says: str, *, copy: bool = False) -> Meaning:
    return Meaning(says, to_check=True, becomes=_E, stops_queues=True, copy=copy)


EVENTS: Mapping[EventType, Meaning] = {
    EventType.PING_CHECKER_NODE_SUSPECTED: _lost_launch("a node does not answer the node check", Suspects.NAMED),
    EventType.CPUSET_ERROR: _lost_launch("the job's cgroup could not be made on a node", Suspects.NAMED),
    EventType.PROLOGUE_ERROR: _lost_launch("the prologue failed on the first node", Suspects.FIRST),
    EventType.CANNOT_CREATE_TMP_DIRECTORY: _lost_launch(
        "the directory for the job's files could not be made", Suspects.FIRST
    ),
    EventType.CAN_NOT_WRITE_NODE_FILE: _lost_launch("the node file could not be written", Suspects.FIRST),
    EventType.CAN_NOT_WRITE_PID_FILE: _lost_launch("the supervisor's own file could not be written", Suspects.FIRST),
    EventType.USER_SHELL: _lost_launch(
        "the account or its login shell cannot be used on the first node", Suspects.FIRST, blame=Blame.USER
    ),
    EventType.USER_UNKNOWN: _lost_launch(
        "the user is not known any more", Suspects.NAMED, blame=Blame.USER, copy=False
    ),
    EventType.USER_LOOKUP_ERROR: Meaning(
        "the user could not be looked up; the job waits", to_check=True, suspects=Suspects.NAMED, blame=Blame.USER
    ),
    EventType.LAUNCHING_OAREXEC_TIMEOUT: _lost_launch("the launch never arrived on the first node", Suspects.NAMED),
    EventType.SSH_TRANSFER_TIMEOUT: _lost_launch(
        "what the job needs took too long to travel to a node", Suspects.FIRST, copy=False
    ),
    EventType.BAD_HASHTABLE_DUMP: _lost_launch(
        "the node could not read what was sent", Suspects.FIRST, blame=Blame.UNCLEAR, copy=False
    ),
    # A user can end the process that starts their own job: while it opens their files it has their uid.
    EventType.EXIT_VALUE_OAREXEC: _lost_launch(
        "the supervisor ended in a way that is not known", Suspects.FIRST, blame=Blame.UNCLEAR, copy=False
    ),
    EventType.RESERVATION_NO_NODE: _lost_launch("none of the reserved nodes can be used", Suspects.NONE, copy=False),
    EventType.EXTERMINATE_JOB: _lost_launch(
        "the job did not end when told to; it was given up", Suspects.JOB, copy=False
    ),
    # Processes that wait for a file system of the user's own (FUSE) can neither be killed nor frozen.
    EventType.CPUSET_CLEAN_ERROR: Meaning(
        "the job's cgroup could not be cleaned on a node",
        to_check=True,
        becomes=_T,
        suspects=Suspects.NAMED,
        blame=Blame.UNCLEAR,
    ),
    EventType.EPILOGUE_ERROR: Meaning(
        "the epilogue failed on the first node", to_check=True, becomes=_T, suspects=Suspects.FIRST
    ),
    EventType.SUSPEND_ERROR: Meaning(
        "the job could not be suspended", to_check=True, suspects=Suspects.NAMED, blame=Blame.UNCLEAR
    ),
    EventType.RESUME_ERROR: Meaning(
        "the job could not be resumed", to_check=True, suspects=Suspects.NAMED, blame=Blame.UNCLEAR
    ),
    EventType.PING_CHECKER_NODE_SUSPECTED_END_JOB: Meaning(
        "a node does not answer the check after a job", to_check=True, suspects=Suspects.NAMED
    ),
    EventType.NODE_FAILS_SEVERAL_USERS: Meaning(
        "jobs of several users failed on a node, one after the other", to_check=True, suspects=Suspects.NAMED
    ),
    EventType.SERVER_PROLOGUE_TIMEOUT: _stop_all("the server's prologue took too long"),
    EventType.SERVER_PROLOGUE_EXIT_CODE_ERROR: _stop_all("the server's prologue did not return 0"),
    EventType.SERVER_PROLOGUE_ERROR: _stop_all("the server's prologue cannot be run", copy=True),
    EventType.SERVER_EPILOGUE_TIMEOUT: _stop_all("the server's epilogue took too long"),
    EventType.SERVER_EPILOGUE_EXIT_CODE_ERROR: _stop_all("the server's epilogue did not return 0"),
    EventType.SERVER_EPILOGUE_ERROR: _stop_all("the server's epilogue cannot be run"),
    EventType.SWITCH_INTO_TERMINATE_STATE: Meaning("the job ended", to_check=True, becomes=_T, copy=True),
    EventType.SWITCH_INTO_ERROR_STATE: Meaning("the job was ended", to_check=True, becomes=_E, copy=True),
    EventType.HOLD_WAITING_JOB: Meaning("a waiting job is to be held", to_check=True),
    EventType.HOLD_RUNNING_JOB: Meaning("a running job is to be suspended", to_check=True),
    EventType.RESUME_JOB: Meaning("a held or suspended job is to go on", to_check=True),
    EventType.FRAG_JOB_REQUEST: Meaning("somebody asked for the end of the job", to_check=True),
    EventType.SEND_KILL_JOB: _note("the job was told to end"),
    EventType.LEON_KILL_BIPBIP_TIMEOUT: _note("the launch under way was ended: the job has to be killed"),
    EventType.WORKING_DIRECTORY: _users_fault("the launching directory does not exist on the node"),
    EventType.OUTPUT_FILES: _users_fault("the output files could not be opened"),
    EventType.STAGE_IN_ERROR: _users_fault("the archive of the job could not be brought to a node, or unpacked there"),
    EventType.STAGE_OUT_ERROR: _note("what the job left could not be fetched from its desktop"),
    EventType.DESKTOP_LEFT: _note("the desktop where the job runs took its leave, which ends the job"),
    EventType.CANNOT_NOTIFY_OARSUB: _note("the waiting oarsub could not be told"),
    EventType.WALLTIME: _note("the job reached its walltime"),
    EventType.SCHEDULER_REDUCE_NB_NODES_FOR_RESERVATION: _note("a reservation starts with fewer resources"),
    EventType.REDUCE_RESERVATION_WALLTIME: _note("a reservation that starts late is shorter"),
    EventType.BESTEFFORT_KILL: _note("a best-effort job makes room for another"),
    EventType.ADD_BESTEFFORT_JOB_TYPE: _note("an administrator made the running job a best-effort job"),
    EventType.DELETE_BESTEFFORT_JOB_TYPE: _note("an administrator made the job an ordinary one"),
    EventType.CHECKPOINT: _note("the checkpoint signal is being sent"),
    EventType.CHECKPOINT_ERROR: _note("the checkpoint signal could not be sent"),
    EventType.CHECKPOINT_SUCCESS: _note("the checkpoint signal was sent"),
    EventType.MAIL_NOTIFICATION_ERROR: _note("a mail to the administrator could not be sent"),
    EventType.USER_MAIL_NOTIFICATION: _note("a mail to the user could not be sent"),
    EventType.USER_EXEC_NOTIFICATION_ERROR: _note("the user's notification program could not be run"),
    EventType.BIPBIP_BAD_JOBID: _note("a report names a job that is not known"),
    EventType.BIPBIP_CHALLENGE: _note("a report does not carry the secret of its attempt"),
    EventType.RESUBMIT_JOB_AUTOMATICALLY: _note("a copy of the job was submitted"),
    EventType.ADMISSION_RULE_ERROR: _note("an admission rule failed, so the job was refused"),
    EventType.CLOCK_JUMP: _note("the server's clock jumped"),
    EventType.ACCOUNTING_REPAIRED: _note("the accounting was wrong and was computed again"),
    EventType.NODE_CLOCK_WRONG: _note("the clock of a node is not that of the server, or is right again"),
    EventType.LOG_SUSPECTED: _note("resources are beyond their expiry_date"),
    EventType.SCHEDULER_JOB_SET_ASIDE: _note("planning the job failed; the others were planned"),
    EventType.SITE_SCHEDULER_ERROR: _note("the site's own scheduler of a queue failed; a built-in policy plans it"),
    EventType.OUT_OF_MEMORY: _note("the kernel killed processes of the job for want of memory"),
    EventType.IDLE_JOB_WARNED: _note("the GPUs of the job do nothing; its owner was warned"),
    EventType.IDLE_JOB_ENDED: _note("the job was ended because its GPUs did nothing, after two warnings"),
    EventType.NODE_HEALING: _note("the site's healing program runs for Suspected nodes"),
    EventType.NODE_HEALING_ERROR: _note("the site's healing program failed"),
    EventType.JOB_KEY_LOST: _lost_launch(
        "the key that the user brought is gone", Suspects.NONE, blame=Blame.USER, copy=False
    ),
    EventType.QUEUES_STOPPED: Meaning("no job of some queues starts any more", to_check=True),
    EventType.QUEUES_STARTED: _note("jobs of queues that were stopped start again"),
    EventType.NEW_GENERATION: _note("the database was restored; what nodes still run of its other states is unknown"),
    EventType.ARCHIVE_SHORT_OF_ROOM: _note("the disk of the measurements is nearly full"),
    EventType.MEASUREMENTS_NOT_KEPT: _note("the collector, or its disk, does not take what is measured"),
    EventType.UNKNOWN_JOB_FOUND: _note("a node runs a job that this database does not know"),
    EventType.UNKNOWN_JOB_ENDED: _note("a job that this database does not know is over on a node"),
}


def _concerns_nodes(meaning: Meaning) -> bool:
    return meaning.suspects is not Suspects.NONE and meaning.blame is not Blame.USER


FOR_ADMINISTRATORS = frozenset(
    {
        EventType.ADMISSION_RULE_ERROR,
        EventType.ARCHIVE_SHORT_OF_ROOM,
        EventType.BIPBIP_CHALLENGE,
        EventType.CLOCK_JUMP,
        EventType.MEASUREMENTS_NOT_KEPT,
        EventType.NODE_CLOCK_WRONG,
        EventType.NODE_HEALING_ERROR,
        EventType.NEW_GENERATION,
        EventType.SCHEDULER_JOB_SET_ASIDE,
        EventType.SITE_SCHEDULER_ERROR,
        EventType.QUEUES_STOPPED,
        EventType.UNKNOWN_JOB_FOUND,
    }
    | {kind for kind, meaning in EVENTS.items() if meaning.stops_queues or _concerns_nodes(meaning)}
)
"""Events after which nodes or queues do not work any more until somebody has looked, and those that should not be."""


def event_type(name: str) -> EventType:
    """Find an event type by its name, OAR 2.5's spellings included. `ValueError` if there is none."""
    return OLD_SPELLINGS.get(name) or EventType(name)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened. An event may name several hosts, or none."""

    type: EventType
    at: int
    description: str
    job: int | None = None
    hosts: tuple[str, ...] = ()

    @property
    def to_check(self) -> bool:
        """Whether somebody must still act on it."""
        return EVENTS[self.type].to_check
