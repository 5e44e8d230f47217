"""Settings of a portal for a cluster that others run: where its resource manager is asked, and how often."""

from dataclasses import dataclass

from oarlock.settings import kinds
from oarlock.settings.kinds import SettingSection
from oarlock.settings.secret import Secret

_SOURCES = SettingSection("Sources (`oarlock portal`)")


@dataclass(frozen=True, kw_only=True)
class SourceSettings:
    """Settings of a portal for a cluster that others run."""

    source_database: str = _SOURCES(
        kinds.ANY_TEXT,
        "",
        "The database of OAR or slurmdbd that `oarlock portal --source` reads: postgresql://USER@HOST/DATABASE or "
        "mysql://USER@HOST/DATABASE. Empty for Slurm: sinfo, squeue and sacct are run.",
    )
    source_password: Secret | None = _SOURCES(kinds.SECRET, None, "The password of that account, if it needs one.")
    source_period: int = _SOURCES(
        kinds.whole("a number of seconds from 5 to 3600", least=5, most=3600),
        30,
        "Every so many seconds the source is asked what is new.",
    )
    source_history: int = _SOURCES(
        kinds.whole("a number of days from 1 to 3650", least=1, most=3650),
        30,
        "So many days before its first start a portal copies jobs that are over.",
    )
