"""Past releases, built from their commits: for tests that upgrade from them."""

import os
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Release:
    """A release, and the commit that it was made from."""

    version: str
    date: str
    commit: str

    def require_commit(self) -> None:
        """Skip, with a sentence, where this clone does not have the commit."""
        if git("cat-file", "-e", f"{self.commit}^{{commit}}").returncode:
            pytest.skip(f"this clone is shallow or no clone: commit {self.commit[:7]} of {self.version} is not in it")

    def text(self, path: str) -> str:
        """Return a file as it was."""
        return git("show", f"{self.commit}:{path}").stdout.decode()

    def unpack_source(self, folder: Path) -> Path:
        """Unpack the sources of the commit."""
        source = folder / "source"
        source.mkdir()
        packed = git("archive", "--format=tar", self.commit)
        subprocess.run(["tar", "-x", "-C", str(source)], input=packed.stdout, check=True, timeout=60)
        return source

    def unpack_wheel(self, folder: Path) -> Path:
        """Build the wheel from the commit, and unpack it; its dependencies are those of this environment."""
        source, place = self.unpack_source(folder), folder / "wheel"
        build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(place)]
        environment = {**os.environ, "OARLOCK_NO_BROWSER_FILES": "1"}
        built = subprocess.run(build, cwd=source, env=environment, capture_output=True, text=True, timeout=120)
        assert built.returncode == 0, built.stderr
        [wheel] = place.glob("*.whl")
        assert wheel.name.startswith(f"oarlock-{self.version}-")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(place)
        return place


def git(*words: str) -> "subprocess.CompletedProcess[bytes]":
    """Run git in this clone."""
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, timeout=60, check=False)


RELEASES = [Release(**row) for row in tomllib.loads((ROOT / "tests/releases.toml").read_text())["release"]]
