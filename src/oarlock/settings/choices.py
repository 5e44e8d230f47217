"""Settings that are one word among few."""

from enum import StrEnum


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


class PerlRules(StrEnum):
    """What becomes of Perl rules in the table that are not among the manual's examples."""

    DISABLE = "disable"  # switched off, with an event
    REFUSE = "refuse"  # every job is refused until somebody looks
