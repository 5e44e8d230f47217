"""Settings about files that travel with jobs, and about machines that fetch their jobs themselves."""

from dataclasses import dataclass
from pathlib import Path

from oarlock.settings import kinds
from oarlock.settings.kinds import SettingSection

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
