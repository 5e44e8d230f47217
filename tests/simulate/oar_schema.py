"""The tables of a real OAR 2, from Debian's own package: unpacked where it can be had, never installed."""

import shutil
import subprocess
from pathlib import Path

import pytest

INSTALLED = Path("/usr/lib/oar/database")
LEFT_OUT = "Debian's package oar-server cannot be had here, so reading the database of a real OAR is not tested"
_SECONDS = 60


def oar_sql(cache: Path) -> list[str]:
    """Give what `oar-database --create` runs on PostgreSQL: tables and default data; skips where they are not."""
    folder = INSTALLED if INSTALLED.is_dir() else cache / INSTALLED.relative_to("/")
    if not folder.is_dir():
        _unpack(cache)
    if not folder.is_dir():
        pytest.skip(LEFT_OUT)
    return [(folder / name).read_text() for name in ("pg_structure.sql", "default_data.sql")]


def _unpack(cache: Path) -> None:
    if shutil.which("apt-get") is None or shutil.which("dpkg-deb") is None:
        return
    options = {"cwd": cache, "capture_output": True, "timeout": _SECONDS, "check": True}
    try:
        subprocess.run(["apt-get", "download", "--quiet", "oar-server"], **options)
        [package] = cache.glob("oar-server_*.deb")
        subprocess.run(["dpkg-deb", "--extract", str(package), str(cache)], **options)
    except (subprocess.SubprocessError, ValueError):
        return
