"""Write packaging/requirements.txt again: what the Debian package carries, by version and sum. Needs the registry.

The pins make `make deb` give the same bytes for the same commit; the sums are those of all builds that a site may need.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "packaging" / "requirements.txt"
EXTRAS = "archive,colmet,graphs,pdf,remote"
"""Not `parquet`: pyarrow alone is larger than all the rest, and only an export needs it."""
PYTHONS = ("3.11", "3.12", "3.13")
MACHINES = ("x86_64", "aarch64")
MANYLINUX = ("manylinux_2_34", "manylinux_2_31", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
HEAD = """\
# What the Debian package carries, by version and sum. `python -m scripts.lock_dependencies` writes it.
"""


def _report(requirements: list[str], *options: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-"]
    ran = subprocess.run([*command, *options, *requirements], check=True, stdout=subprocess.PIPE, cwd=ROOT)
    installs: list[dict[str, object]] = json.loads(ran.stdout)["install"]
    return installs


def _pinned(install: dict[str, object]) -> tuple[str, str]:
    about = install["metadata"]
    assert isinstance(about, dict)
    return f"{about['name'].lower()}=={about['version']}", about["name"]


def _sum(install: dict[str, object]) -> str:
    download = install["download_info"]
    assert isinstance(download, dict)
    return str(download["archive_info"]["hash"]).partition("=")[2]


def main() -> None:
    """Resolve once here, then look for the builds of these versions for each Python and machine."""
    chosen = [pin for pin, name in map(_pinned, _report([f".[{EXTRAS}]"])) if name != "oarlock"]
    sums: dict[str, set[str]] = {pin: set() for pin in chosen}
    for python in PYTHONS:
        for machine in MACHINES:
            platforms = [word for tag in MANYLINUX for word in ("--platform", f"{tag}_{machine}")]
            binary = ["--only-binary=:all:", "--no-deps", "--target=/nowhere", f"--python-version={python}"]
            for install in _report(chosen, *binary, *platforms):
                sums[_pinned(install)[0]].add(_sum(install))
    lines = [" \\\n".join([pin, *(f"    --hash=sha256:{each}" for each in sorted(sums[pin]))]) for pin in sorted(sums)]
    LOCK.parent.mkdir(exist_ok=True)
    LOCK.write_text(HEAD + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
