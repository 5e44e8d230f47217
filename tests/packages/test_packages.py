"""What is handed out: source archive, wheel and Debian packages, and what is there once they are installed."""

import json
import os
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

from oarlock import __version__
from oarlock.cli import oarlock
from oarlock.config import Config
from scripts import build_packages

EPOCH = "1700000000"
SHARE = f"oarlock-{__version__}.data/data/share"
INSIDE = [
    "oarlock/rules/01-default-queue.toml",
    "oarlock/web/assets/portal.css",
    "oarlock/web/assets/vendor/uplot/uPlot.iife.min.js",
    "oarlock/web/templates/base.html",
    "oarlock/insight/findings.toml",
    *(f"{SHARE}/man/man1/{page.name}" for page in sorted((build_packages.ROOT / "man/man1").iterdir())),
    f"{SHARE}/bash-completion/completions/oarlock",
    f"{SHARE}/zsh/site-functions/_oarlock",
    f"{SHARE}/fish/vendor_completions.d/oarlock.fish",
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source archive and the wheel of this tree."""
    return build_packages.build_dist(tmp_path_factory.mktemp("dist"), EPOCH)


def run(*command, **options):
    """Run a command and return what it printed on both channels."""
    ran = subprocess.run(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=100, **options
    )
    assert ran.returncode == 0, f"{command}: {ran.stdout}"
    return ran.stdout


def empty_environment(folder, python=sys.executable):
    """Make an environment without packages; return its Python."""
    run(python, "-m", "venv", "--without-pip", folder)
    return folder / "bin/python"


def install(python, *what):
    """Install into the environment of another Python, by the pip of this one."""
    pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check", "install", "--quiet")
    run(*pip, "--no-index", "--no-compile", *what)


def lend_dependencies(python):
    """Let an environment find what Oarlock depends on in that of the tests; its editable Oarlock is not followed."""
    ours = sysconfig.get_path("purelib")
    theirs = run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
    Path(theirs, "dependencies.pth").write_text(f"{ours}\n")


def clean(**more):
    """Return variables without those that lead to this tree or to another server."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "OAR"))}
    return {**variables, **more}


def test_the_wheel_installs_with_everything_in_it(built, tmp_path):
    _, wheel = built
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in INSIDE if name not in archive.namelist()] == []

    python = empty_environment(tmp_path / "env")
    install(python, "--no-deps", wheel)
    lend_dependencies(python)

    bin_, variables = tmp_path / "env/bin", clean(HOME=str(tmp_path))
    assert run(bin_ / "oarlock", "--version", env=variables, cwd=tmp_path) == f"oarlock {__version__}\n"
    assert run(python, "-c", "import oarlock; print(oarlock.__file__)", cwd=tmp_path, env=variables).startswith(
        str(tmp_path)
    )
    assert "examples come out" in run(bin_ / "oarlock", "rules", "test", env=variables, cwd=tmp_path)
    manual = (tmp_path / "env/share/man/man1/oarsub.1").read_text()
    assert manual.startswith(".TH ")
    missing = [name for name in build_packages.scripts() if not os.access(bin_ / name, os.X_OK)]
    assert missing == []


def test_a_build_gives_the_same_bytes_again(built, tmp_path):
    before = os.umask(0o077)
    try:
        again = build_packages.build_dist(tmp_path, EPOCH)
    finally:
        os.umask(before)
    assert [path.read_bytes() for path in again] == [path.read_bytes() for path in built]


def test_the_source_archive_has_tests_and_browser_files(built):
    source, _ = built
    with tarfile.open(source) as archive:
        names = set(archive.getnames())
    top = f"oarlock-{__version__}"
    wanted = ["src/oarlock/web/assets/vendor/uplot/uPlot.min.css", "tests/packages/test_packages.py", "hatch_build.py"]
    assert [name for name in wanted if f"{top}/{name}" not in names] == []


def statements(text):
    """Return the statements of a container file, each a word and the rest of its line."""
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in lines)]


def test_what_the_container_file_names_is_in_tree_and_wheel(built):
    """No container is built here: what can be known without an engine is checked."""
    _, wheel = built
    given = statements((build_packages.ROOT / "packaging/Containerfile").read_text())
    assert {word for word, _ in given} <= {
        "FROM", "RUN", "COPY", "ENV", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL", "ENTRYPOINT", "CMD",
    }  # fmt: skip
    copied = [rest.split()[0] for word, rest in given if word == "COPY" and not rest.startswith("--from=")]
    assert [path for path in copied if not (build_packages.ROOT / path).exists()] == ["dist/oarlock-*.whl"]
    assert wheel.match("oarlock-*.whl")
    last = dict(given)
    with zipfile.ZipFile(wheel) as archive:
        scripts = archive.read(f"oarlock-{__version__}.dist-info/entry_points.txt").decode()
    (entry,) = json.loads(last["ENTRYPOINT"])
    assert Path(entry).parent == Path("/opt/oarlock/bin")
    assert last["COPY"] == "--from=build /opt/oarlock /opt/oarlock"
    assert f"\n{Path(entry).name} = " in scripts
    command = oarlock.options().parse_args(json.loads(last["CMD"]))
    assert str(command.state) == last["VOLUME"] == "/var/lib/oarlock"
    assert last["EXPOSE"] == str(Config().server_port)
    assert f"useradd --system --home-dir /var/lib/oarlock --shell /usr/sbin/nologin {last['USER']}" in last["RUN"]


ONLY_STANDARD_LIBRARY = """\
import sys
sys.path.insert(0, sys.argv.pop(1))
from importlib import import_module
module, function = sys.argv.pop(1).split(":")
sys.exit(getattr(import_module(module), function)())
"""


def call_client(stage, target, *arguments, python=sys.executable):
    """Run a command of the client package without any other package; return how it ended and what it printed."""
    path = stage / build_packages.CLIENT
    command = [python, "-I", "-S", "-c", ONLY_STANDARD_LIBRARY, path, target, *arguments]
    ran = subprocess.run(
        list(map(str, command)), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60,
        env=clean(HOME="/nowhere"),
    )  # fmt: skip
    return ran.returncode, ran.stdout


def test_the_client_package_needs_the_standard_library_only(built, tmp_path):
    build_packages.stage_client(tmp_path, built[1])
    for name, target in build_packages.client_scripts().items():
        status, text = call_client(tmp_path, target, "--help")
        assert (status, text[:6].lower()) == (0, "usage:"), f"{name}: {text}"
    assert call_client(tmp_path, "oarlock.cli.oarlock:main", "--version") == (0, f"oarlock {__version__}\n")
    assert (tmp_path / "usr/share/man/man1/oarsub.1").is_file()


def test_the_client_package_says_what_it_cannot_do(built, tmp_path):
    build_packages.stage_client(tmp_path, built[1])
    status, text = call_client(tmp_path, "oarlock.cli.oarlock:main", "serve", "--state", str(tmp_path / "state"))
    assert status == 2
    assert text == (
        "oarlock: this machine has the commands alone (package oarlock-client), and this needs the rest.\n"
        "  Run it on the server, or install the package oarlock here instead.\n"
    )


OVER_USR = """\
set -e
mount -t overlay -o lowerdir={package}/usr:/usr overlay /usr
cd /tmp
oarlock --version
man -w oarsub
oarlock demo --tour --user nobody
"""


@pytest.mark.soak
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can put a tree over /usr")
def test_the_debian_packages_work_and_come_out_the_same_twice(tmp_path):
    _, wheel = build_packages.build_dist(tmp_path, EPOCH)
    first = build_packages.build_deb(wheel, tmp_path, EPOCH)
    (tmp_path / "again").mkdir()
    second = build_packages.build_deb(wheel, tmp_path / "again", EPOCH)
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]

    server, client = first
    run("dpkg-deb", "-x", server, tmp_path / "server")
    script = OVER_USR.format(package=tmp_path / "server")
    text = run("unshare", "-m", "sh", "-c", script, env=clean())
    assert text.startswith(f"oarlock {__version__}\n/usr/share/man/man1/oarsub.1")
    assert "Every job ended as it should" in text

    run("dpkg-deb", "-x", client, tmp_path / "client")
    script = OVER_USR.format(package=tmp_path / "client").replace("oarlock demo --tour --user nobody", "oarsub --help")
    assert "sage:" in run("unshare", "-m", "sh", "-c", script, env=clean())


@pytest.mark.soak
@pytest.mark.parametrize("form", ["wheel", "sdist"])
def test_an_empty_environment_runs_a_demo(form, built, tmp_path):
    source, wheel = built
    python = empty_environment(tmp_path / "env")
    lend_dependencies(python)
    if form == "wheel":
        install(python, "--no-deps", wheel)
    else:
        install(python, "--no-deps", "--no-build-isolation", source)
    variables = clean(HOME=str(tmp_path))
    assert "Every job ended as it should" in run(
        tmp_path / "env/bin/oarlock", "demo", "--tour", env=variables, cwd=tmp_path
    )
