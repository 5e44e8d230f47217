"""Debian packages of this tree and of past releases, built once each into `build/vm`."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.releases import ROOT, Release, git

FOLDER = ROOT / "build" / "vm" / "packages"
# What a package is made of.
_SOURCES = (
    "src", "packaging", "man", "completions", "prometheus", "scripts/build_packages.py", "hatch_build.py",
    "pyproject.toml", "CHANGELOG.md", "README.md", "LICENSE",
)  # fmt: skip


def _files() -> Iterator[Path]:
    for source in map(ROOT.joinpath, _SOURCES):
        found = [source] if source.is_file() else sorted(source.rglob("*"))
        yield from (path for path in found if path.is_file() and "__pycache__" not in path.parts)


def sum_of_tree() -> str:
    """Name what the packages of this tree are made of."""
    sums = (f"{path.relative_to(ROOT)} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in _files())
    return hashlib.sha256("\n".join(sums).encode()).hexdigest()[:12]


def of_this_tree() -> tuple[Path, Path]:
    """Return the packages `oarlock` and `oarlock-client`, as `make deb` builds them."""
    return _built(f"tree-{sum_of_tree()}", ROOT)


def of_release(release: Release) -> tuple[Path, Path]:
    """Return those of a release, built from its commit by its own script."""
    release.require_commit()
    with tempfile.TemporaryDirectory() as source:
        packed = git("archive", "--format=tar", release.commit)
        subprocess.run(["tar", "-x", "-C", source], input=packed.stdout, check=True, timeout=60)
        return _built(f"release-{release.commit[:12]}", Path(source), OARLOCK_NO_BROWSER_FILES="1")


def _built(name: str, source: Path, **variables: str) -> tuple[Path, Path]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (FOLDER / name).exists():
            for older in FOLDER.glob(f"{name.partition('-')[0]}-*/"):
                shutil.rmtree(older)
            making = Path(tempfile.mkdtemp(dir=FOLDER))
            build = ["nice", "-n", "10", sys.executable, "-m", "scripts.build_packages", "deb", "--to", str(making)]
            ran = subprocess.run(
                build, cwd=source, env={**os.environ, **variables}, capture_output=True, text=True, timeout=900
            )
            assert ran.returncode == 0, ran.stdout + ran.stderr
            making.rename(FOLDER / name)
    [server] = (FOLDER / name).glob("oarlock_*.deb")
    [client] = (FOLDER / name).glob("oarlock-client_*.deb")
    return server, client
