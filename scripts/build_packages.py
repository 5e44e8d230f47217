"""Build what is handed out: `python -m scripts.build_packages dist` (source, wheel) and `deb` (Debian packages).

The same commit gives the same bytes: every date is the commit's, owners are root, what the package carries is pinned by
sum. Standard library, hatchling and Debian's `dpkg-deb`.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "packaging" / "requirements.txt"
ENVIRONMENT = Path("usr/lib/oarlock")
"""Where the package `oarlock` has its environment; a virtual one, so that processes which the server starts find it."""
CLIENT = Path("usr/lib/oarlock-client")
CLIENT_PARTS = (
    "__init__.py",
    "__main__.py",
    "client.py",
    "client_connection.py",
    "minimal_http.py",
    "minimal_tls.py",
    "munge.py",
    "py.typed",
    "cli",
    "lang",
    "model",
    "node",
)
CLIENT_PARTS += ("server/__init__.py", "server/editor.py", "server/login_relay.py", "server/setup")
"""What commands are made of; standard library only. A test runs each of them without anything else."""
NOT_FOR_CLIENTS = ("oar_resources_init", "oarmonitor_graph_gen", "oarmonitor_graph_gen.pl")
"""Commands that need settings or drawing."""
_UNPACKED = ("direct_url.json", "RECORD", "REQUESTED", "INSTALLER")  # of pip; the first two name the building machine

_CONTROL = """\
Package: {name}
Version: {version}
Architecture: {architecture}
Maintainer: The Oarlock developers <oarlock@localhost>
Installed-Size: {kilobytes}
Depends: {depends}
{relations}Section: admin
Priority: optional
Description: {summary}
"""
_SERVER_SUMMARY = """\
batch scheduler and job monitor that speaks OAR
 Runs a cluster's jobs and shows what each one really did: server, portal,
 commands and the programs that travel to nodes. All Python packages that it
 needs are inside. `oarlock setup server` goes on from here."""
_CLIENT_SUMMARY = """\
commands of Oarlock for login hosts
 oarsub, oarstat and the other commands of a cluster that Oarlock runs, for
 machines where users log in. Needs Python and nothing else.
 `oarlock setup login` goes on from here."""
_COMPILE = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v py3compile >/dev/null; then py3compile -p {name} /{place}; fi
"""
_CLEAN = """\
#!/bin/sh
set -e
if command -v py3clean >/dev/null; then py3clean -p {name}; fi
find /{place} -depth -type d -name __pycache__ -exec rm -rf {{}} + 2>/dev/null || true
"""
_LAUNCHER = """\
#!{python}
import sys
{path}from {module} import {function}

sys.exit({function}())
"""


def main() -> None:
    """Build what is named on the command line into `dist/`, and print the files."""
    parser = argparse.ArgumentParser(description="Build what is handed out.")
    parser.add_argument("what", choices=("dist", "deb"))
    parser.add_argument("--to", type=Path, default=ROOT / "dist")
    parser.add_argument(
        "--wheels", type=Path, help="a folder with the wheels of the dependencies, instead of a registry"
    )
    arguments = parser.parse_args()
    os.umask(0o022)
    epoch = commit_date()
    built = build_dist(arguments.to, epoch)
    if arguments.what == "deb":
        built = build_deb(built[-1], arguments.to, epoch, arguments.wheels)
    for path in built:
        print(path)


def commit_date() -> str:
    """Return the instant of the commit that is built, as SOURCE_DATE_EPOCH wants it; the file's own outside of git."""
    if "SOURCE_DATE_EPOCH" in os.environ:
        return os.environ["SOURCE_DATE_EPOCH"]
    ran = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False)
    if ran.returncode == 0 and ran.stdout.strip():
        return ran.stdout.strip()
    return str(int((ROOT / "pyproject.toml").stat().st_mtime))  # a source archive, whose dates are the commit's


def build_dist(folder: Path, epoch: str) -> list[Path]:
    """Build source archive and wheel; return them in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.DEVNULL)
    return [folder / f"oarlock-{version()}.tar.gz", folder / f"oarlock-{version()}-py3-none-any.whl"]


def version() -> str:
    """Return the version that pyproject.toml says."""
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"])


def debian_version() -> str:
    """Return the version for Debian, where `~` sorts before the end: what is not released comes before the release."""
    return version().replace(".dev", "~dev")


def scripts() -> dict[str, str]:
    """Return the commands by name, with the function that each calls."""
    return dict(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"])


def client_scripts() -> dict[str, str]:
    """Return those commands that the client package has."""
    return {name: target for name, target in scripts().items() if name not in NOT_FOR_CLIENTS}


def build_deb(wheel: Path, folder: Path, epoch: str, wheels: Path | None = None) -> list[Path]:
    """Build both Debian packages from a wheel."""
    with tempfile.TemporaryDirectory() as temporary:
        server, client = Path(temporary) / "server", Path(temporary) / "client"
        stage_server(server, wheel, wheels)
        stage_client(client, wheel)
        this, following = f"3.{sys.version_info.minor}", f"3.{sys.version_info.minor + 1}"
        return [
            _pack(
                server, folder, epoch, name="oarlock", summary=_SERVER_SUMMARY, place=ENVIRONMENT,
                architecture=_output("dpkg", "--print-architecture"),
                depends=f"python3 (>= {this}), python3 (<< {following}~), openssh-client",
                relations="Suggests: logrotate, postgresql-client\nConflicts: oarlock-client\n"
                "Replaces: oarlock-client\nProvides: oarlock-client\n",
            ),
            _pack(
                client, folder, epoch, name="oarlock-client", summary=_CLIENT_SUMMARY, place=CLIENT,
                architecture="all", depends="python3 (>= 3.11)", relations="Conflicts: oarlock\nReplaces: oarlock\n",
            ),
        ]  # fmt: skip


def stage_server(stage: Path, wheel: Path, wheels: Path | None) -> None:
    """Lay out an environment with the wheel and all it needs, and links to its commands."""
    environment = stage / ENVIRONMENT
    python = f"python3.{sys.version_info.minor}"
    packages = environment / "lib" / python / "site-packages"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
    install += ["--no-input", "--no-compile", "--no-deps", "--target", str(packages)]
    source = ["--no-index", "--find-links", str(wheels)] if wheels else []
    subprocess.run([*install, *source, "--only-binary=:all:", "--require-hashes", "-r", str(LOCK)], check=True)
    _unpack(wheel, packages, stage / "usr/share")
    shutil.rmtree(packages / "bin", ignore_errors=True)
    for name in _UNPACKED:
        for path in packages.glob(f"*.dist-info/{name}"):
            path.unlink()
    (environment / "bin").mkdir()
    (environment / "bin/python3").symlink_to(f"/usr/bin/{python}")
    (environment / "bin/python").symlink_to("python3")
    (environment / "pyvenv.cfg").write_text("home = /usr/bin\ninclude-system-site-packages = false\n")
    (stage / "usr/bin").mkdir()
    for name, target in scripts().items():
        _launcher(environment / "bin" / name, f"/{ENVIRONMENT}/bin/python3 -I", target)
        (stage / "usr/bin" / name).symlink_to(f"/{ENVIRONMENT}/bin/{name}")
    _documents(stage, "oarlock", scripts())


def stage_client(stage: Path, wheel: Path) -> None:
    """Lay out the commands alone, for the system's own Python."""
    with tempfile.TemporaryDirectory() as temporary:
        whole, share = Path(temporary) / "whole", Path(temporary) / "share"
        _unpack(wheel, whole, share)
        package = stage / CLIENT / "oarlock"
        package.mkdir(parents=True)
        for part in CLIENT_PARTS:
            _copy(whole / "oarlock" / part, package / part)
        for part in ("man", "bash-completion", "zsh", "fish"):
            _copy(share / part, stage / "usr/share" / part)
    (stage / "usr/bin").mkdir()
    for name, target in client_scripts().items():
        _launcher(stage / "usr/bin" / name, "/usr/bin/python3 -I", target, path_entry=f"/{CLIENT}")
    for name in NOT_FOR_CLIENTS:
        (stage / f"usr/share/man/man1/{name}.1").unlink(missing_ok=True)
    _documents(stage, "oarlock-client", client_scripts())


def _unpack(wheel: Path, packages: Path, share: Path) -> None:
    """Unpack a wheel: the package to one place, man pages and the like to another."""
    data = f"{wheel.name.partition('-py3')[0]}.data/data/share/"
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            target = share / name.removeprefix(data) if name.startswith(data) else packages / name
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(name))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copyfile(source, target)


def _launcher(path: Path, python: str, target: str, *, path_entry: str = "") -> None:
    module, _, function = target.partition(":")
    entry = f'sys.path.insert(0, "{path_entry}")\n' if path_entry else ""
    path.write_text(_LAUNCHER.format(python=python, path=entry, module=module, function=function))


def _documents(stage: Path, name: str, commands: Iterable[str]) -> None:
    """Write the licence and the changes where Debian looks for them; other commands complete as `oarlock` does."""
    documents = stage / "usr/share/doc" / name
    documents.mkdir(parents=True)
    shutil.copyfile(ROOT / "LICENSE", documents / "copyright")
    shutil.copyfile(ROOT / "CHANGELOG.md", documents / "CHANGELOG.md")
    completions = stage / "usr/share/bash-completion/completions"
    for command in commands:
        if command != "oarlock":
            (completions / command).symlink_to("oarlock")


def _pack(
    stage: Path, folder: Path, epoch: str, *, name: str, summary: str, place: Path, architecture: str, depends: str,
    relations: str,
) -> Path:  # fmt: skip
    """Pack a laid out tree; modes and dates are set, so that only contents matter."""
    control = stage / "DEBIAN"
    control.mkdir()
    files = [path for path in _tree(stage) if path.is_file() and not path.is_symlink()]
    fields = {"name": name, "version": debian_version(), "architecture": architecture, "depends": depends}
    kilobytes = sum(-(-path.stat().st_size // 1024) for path in files)
    (control / "control").write_text(
        _CONTROL.format(**fields, relations=relations, summary=summary, kilobytes=kilobytes)
    )
    (control / "postinst").write_text(_COMPILE.format(name=name, place=place))
    (control / "prerm").write_text(_CLEAN.format(name=name, place=place))
    executable = {control / "postinst", control / "prerm"}
    for path in _tree(stage):
        if not path.is_symlink():
            runs = path.is_dir() or path in executable or path.parent.name == "bin"
            path.chmod(0o755 if runs else 0o644)
        os.utime(path, (int(epoch), int(epoch)), follow_symlinks=False)
    package = folder / f"{name}_{debian_version()}_{architecture}.deb"
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(stage), str(package)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": epoch}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return package


def _tree(folder: Path) -> Iterable[Path]:
    """Yield a folder and everything below it, what is inside before what it is in."""
    for path, folders, files in os.walk(folder, topdown=False):
        yield from (
            Path(path) / name for name in [*files, *(each for each in folders if (Path(path) / each).is_symlink())]
        )
        yield Path(path)


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
