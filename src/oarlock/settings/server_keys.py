"""Settings of the server itself: its database, its addresses, its log and its mails."""

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from types import MappingProxyType

from oarlock.settings import kinds
from oarlock.settings.kinds import DbType, JobReportMails, JobVisibility, Network, SettingSection
from oarlock.settings.secret import Secret

_DATABASE = SettingSection("Database")
_SERVER = SettingSection("Server")
_MEASUREMENTS = SettingSection("Measurements")
_TELLING = SettingSection("Log, mail and accounting")
_DB_TYPE = kinds.choice(
    DbType, mysql="MySQL is not supported: use `Pg` (PostgreSQL) for a site, or `sqlite`, which needs no server."
)
_NO_LEADERS: Mapping[str, tuple[str, ...]] = MappingProxyType({})
_LOOPBACK: tuple[Network, ...] = (ip_network("127.0.0.0/8"), ip_network("::1/128"))


@dataclass(frozen=True, kw_only=True)
class ServerSettings:
    """Settings of the server itself: its database, its addresses, its log and its mails."""

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
    tls_certificate: Path | None = _SERVER(
        kinds.PATH, None, "The certificate of that port, with its chain (PEM); it is read again when it changes."
    )
    tls_key: Path | None = _SERVER(
        kinds.PATH, None, "The private key of the certificate (PEM), which others cannot read."
    )
    tls_ended_by_proxy: bool = _SERVER(
        kinds.YES_NO,
        False,
        "Listen beyond this machine without a certificate, because a proxy in front of it speaks TLS.",
    )
    portal: bool = _SERVER(kinds.YES_NO, True, "Whether that port also has pages for people.")
    portal_url: str = _SERVER(
        kinds.ANY_TEXT,
        "",
        "The address of the portal as browsers see it, such as https://cluster.example.org; nothing: that of the port.",
    )
    portal_public: bool = _SERVER(
        kinds.YES_NO,
        False,
        "Whether the overview (squares of nodes, lengths of queues, no names of users) is shown without signing in.",
    )
    job_visibility: JobVisibility = _SERVER(
        kinds.choice(JobVisibility),
        JobVisibility.ALL,
        "Whose jobs users see, in commands, the API and pages: everybody's, those of projects that are called as one "
        "of their groups, or their own. Other jobs do not exist for them; administrators see all.",
    )
    submission_advice: bool = _SERVER(
        kinds.YES_NO,
        False,
        "Whether a user who asks for much more time than the last runs of the same name or script took is told so at "
        "submission. `oarsub --advise` tells it in any case, and submits nothing.",
    )
    metrics_need_token: bool = _SERVER(
        kinds.YES_NO, False, "Whether /metrics is refused to those who may talk to that port but say no name."
    )
    admins: tuple[str, ...] = _SERVER(
        kinds.WORDS, (), "Users who administer; nothing means root and the user that the server runs as."
    )
    munge_socket: Path | None = _SERVER(
        kinds.PATH,
        None,
        "Where munge listens on this machine, such as /run/munge/munge.socket.2: commands on hosts with the same munge "
        "key then need no token. Nothing: credentials of munge are refused.",
    )
    login_hosts: tuple[str, ...] = _SERVER(
        kinds.WORDS,
        (),
        "Login hosts with munge: a job that is submitted there runs the programs of its `--notify exec:` there. Those "
        "with a relay are known by their keys.",
    )
    admin_login_hosts: tuple[str, ...] = _SERVER(
        kinds.WORDS,
        (),
        "Login hosts, of a relay or of LOGIN_HOSTS, from where administrators may administer: whoever is root there "
        "administers, too.",
    )
    serve_everybody: bool = _SERVER(
        kinds.YES_NO,
        False,
        "Whether a server that does not run as root serves all users; it then reaches jobs' users by programs that are "
        "installed (NODE_ACCESS, LOCAL_NODE_CMD). A server of root's always does.",
    )
    support: tuple[str, ...] = _SERVER(
        kinds.PEOPLE,
        (),
        "Support staff: they see the totals, curves, findings, energy and scripts of all jobs, but neither the output "
        "of a job nor its environment, and they change nothing.",
    )
    project_leaders: Mapping[str, tuple[str, ...]] = _SERVER(
        kinds.LEADERS,
        _NO_LEADERS,
        "Who leads which project: they see the totals, curves, findings and energy of its jobs, but no script and no "
        "output, and they change nothing.",
    )

    archive_keep_days: int = _MEASUREMENTS(
        kinds.COUNT, 90, "For how many days every sample of a job or node is kept; 0: for ever."
    )
    archive_thin_days: int = _MEASUREMENTS(
        kinds.COUNT,
        730,
        "For how many days the least, the mean and the most of 5 minutes are kept; then files of jobs are deleted. 0: "
        "for ever.",
    )
    archive_node_days: int = _MEASUREMENTS(
        kinds.COUNT, 3650, "For how many days those of an hour are kept of nodes; 0: for ever."
    )
    archive_summary_days: int = _MEASUREMENTS(
        kinds.COUNT,
        3650,
        "For how many days the summaries of jobs, the sums of days and the energy ledger are kept; 0: for ever.",
    )
    archive_keep_free: int = _MEASUREMENTS(
        kinds.whole("a whole number from 0 to 90", most=90),
        10,
        "Percent of the disk that stay free: below it the oldest files of measurements are thinned early.",
    )
    archive_pin_quota: int = _MEASUREMENTS(
        kinds.whole("a number of MiB, 0 or more", most=100_000_000),
        10_240,
        "The MiB of files that a user may pin (`oarlock archive pin`): they are neither thinned nor deleted.",
    )
    archive_fetch_cmd: tuple[str, ...] = _MEASUREMENTS(
        kinds.COMMAND,
        (),
        "A program that brings back the file of a job, or of a node's day, which the site has moved elsewhere. It gets "
        "three more arguments: the job or the node, the file's path below `samples`, and where to put it.",
    )
    archive_fetch_timeout: int = _MEASUREMENTS(
        kinds.SOME_SECONDS, 60, "How long that program may take before it is ended."
    )
    remote_write_url: str = _MEASUREMENTS(
        kinds.URL,
        "",
        "Where all samples are written as well, by remote write: `http://…/api/v1/write` of Prometheus, "
        "VictoriaMetrics or Mimir.",
    )
    remote_write_token: Secret | None = _MEASUREMENTS(kinds.SECRET, None, "The bearer token that is sent there.")
    remote_write_tenant: str = _MEASUREMENTS(
        kinds.PERHAPS_WORD, "", "The tenant of Mimir (X-Scope-OrgID), for writing and reading."
    )

    prometheus_url: str = _MEASUREMENTS(
        kinds.URL,
        "",
        "Where curves are read that are not kept here, and by `oarlock portal` all measurements: the address of "
        "Prometheus before `/api/v1`.",
    )
    prometheus_token: Secret | None = _MEASUREMENTS(kinds.SECRET, None, "The bearer token that is sent there.")

    findings_file: Path | None = _MEASUREMENTS(
        kinds.PATH, None, "The site's own rules of findings (TOML), which change or add to those of Oarlock."
    )

    log_level: int = _TELLING(kinds.LEVEL, 3, "How much is logged; each level includes the ones before it.")
    log_file: Path | None = _TELLING(kinds.PATH, None, "Where the log goes; nothing means standard error.")
    mail_smtp_server: str = _TELLING(kinds.ANY_TEXT, "", "The mail server; nothing means that no mail is sent.")
    mail_recipient: tuple[str, ...] = _TELLING(kinds.ADDRESSES, (), "Who is told about trouble.")
    mail_sender: str = _TELLING(kinds.ANY_TEXT, "", "The sender of mails.")
    mail_digests: bool = _TELLING(
        kinds.YES_NO,
        False,
        "Whether users get a weekly digest of findings about their jobs, and MAIL_RECIPIENT weekly and monthly lists.",
    )
    mail_user_domain: str = _TELLING(
        kinds.PERHAPS_WORD,
        "",
        "What stands behind the @ in the addresses of users; nothing: they get no mails that they did not ask for.",
    )
    mail_addresses: Path | None = _TELLING(
        kinds.PATH,
        None,
        "A file with a user and an address on each line, for users whose address is not made with MAIL_USER_DOMAIN.",
    )
    mail_job_reports: JobReportMails = _TELLING(
        kinds.choice(JobReportMails),
        JobReportMails.NO,
        "Whether `oarlock portal` mails users a report of jobs that ended: `all`, those with `findings`, or `no`.",
    )
    mail_hours: str = _TELLING(
        kinds.HOURS, "9-17", "Between which hours, Monday to Friday, such mails are sent, in the server's time zone."
    )
    accounting_window: int = _TELLING(kinds.SOME_SECONDS, 86400, "The length of a row of the accounting table.")
