"""Compare what is installed, and what the Debian package carries, with known vulnerabilities.

    python scripts/audit.py [ADVISORIES]

ADVISORIES is a folder or a zip file of OSV records (the form of osv.dev and of the Python Packaging Advisory
Database), or the variable OARLOCK_ADVISORIES names one. Nothing is fetched: without such data it says that it could not
look. Ends with 0 when nothing is known, 1 when something is, 3 when it could not look.
"""

import importlib.metadata
import json
import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

ROOT = Path(__file__).resolve().parent.parent
CARRIED = ROOT / "packaging" / "requirements.txt"
COULD_NOT_LOOK = 3

Record = Mapping[str, Any]


def normalised(name: str) -> str:
    """Return a package's name as registries compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def installed() -> set[tuple[str, str]]:
    """Return name and version of everything in this environment but ourselves."""
    pairs = {(normalised(found.metadata["Name"]), found.version) for found in importlib.metadata.distributions()}
    return {(name, version) for name, version in pairs if name != "oarlock"}


def carried(text: str) -> set[tuple[str, str]]:
    """Return name and version of what the Debian package carries."""
    return {(normalised(name), version) for name, version in re.findall(r"^([\w.-]+)==([^\s\\]+)", text, re.MULTILINE)}


def records(place: Path) -> Iterator[Record]:
    """Yield the OSV records below a folder, or in a zip file."""
    if place.is_dir():
        for path in sorted(place.rglob("*.json")):
            yield json.loads(path.read_text())
        return
    with zipfile.ZipFile(place) as archive:
        for name in sorted(archive.namelist()):
            if name.endswith(".json"):
                yield json.loads(archive.read(name))


def concerns(record: Record, name: str, version: str) -> bool:
    """Whether a record says that this version of a package is vulnerable."""
    if record.get("withdrawn"):
        return False
    for affected in record.get("affected", ()):
        package = affected.get("package", {})
        if package.get("ecosystem") != "PyPI" or normalised(package.get("name", "")) != name:
            continue
        if version in affected.get("versions", ()) or any(
            _inside(span, version) for span in affected.get("ranges", ())
        ):
            return True
    return False


def _inside(span: Mapping[str, Any], version: str) -> bool:
    """Whether a version lies in a range: its events are in order, the last one that was passed decides."""
    if span.get("type") != "ECOSYSTEM":
        return False
    try:
        here, inside = Version(version), False
        for event in span.get("events", ()):
            if "introduced" in event and here >= Version(event["introduced"]):
                inside = True
            if ("fixed" in event and here >= Version(event["fixed"])) or (
                "last_affected" in event and here > Version(event["last_affected"])
            ):
                inside = False
    except InvalidVersion:
        return True  # what cannot be compared is named, so that somebody looks
    return inside


def complaints(known: Iterable[Record], packages: Iterable[tuple[str, str]]) -> list[str]:
    """Return a line for each vulnerability that one of the packages has."""
    by_name: dict[str, set[str]] = {}
    for name, version in packages:
        by_name.setdefault(name, set()).add(version)
    return sorted(
        f"{name} {version}: {record['id']} {record.get('summary') or ''}".rstrip()
        for record in known
        for name in {normalised(affected.get("package", {}).get("name", "")) for affected in record.get("affected", ())}
        for version in by_name.get(name, ())
        if concerns(record, name, version)
    )


def main(arguments: list[str]) -> int:
    """Look, and print what was found."""
    place = Path(arguments[0] if arguments else os.environ.get("OARLOCK_ADVISORIES", ""))
    if not place.name or not place.exists():
        where = f"{place} is not there" if place.name else "no advisories were named"
        print(
            f"Could not look for vulnerabilities: {where}. Fetch OSV's records of PyPI and name the folder or zip file:"
        )
        print("  make audit ADVISORIES=all.zip")
        return COULD_NOT_LOOK
    packages = installed() | carried(CARRIED.read_text())
    known = list(records(place))
    wrong = complaints(known, packages)
    for line in wrong:
        print(line)
    print(f"{len(packages)} packages, {len(known)} records, {len(wrong)} known vulnerabilities")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
