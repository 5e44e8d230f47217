"""What each role needs: the server, a login host, a node whose program is installed."""

import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from oarlock.server.setup.journal import below
from oarlock.server.setup.plan import PlannedFile, PlannedLines, SetupFailed, SetupPlan

SETTINGS = Path("/etc/oarlock")
KEY = SETTINGS / "id_ed25519"
UNIT = "oarlock.service"
RELAY_UNIT = "oarlock-relay.service"
RELAY_KEY = SETTINGS / "relay.key"
RELAY_SOCKET = "/run/oarlock-relay/server.sock"
ACCOUNT = "oarlock"
PROGRAM = Path("/usr/local/lib/oarlock/node")
SUDOERS = Path("/etc/sudoers.d/oarlock")
_FILES = Path(__file__).parent / "files"
_NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9.-]*")
_SERVER = re.compile(r"https?://[A-Za-z0-9.\[\]:-]+(/[\w./-]*)?")
SCAN_SECONDS = 10


def server(root: Path, nodes: Sequence[str] = (), account: str = "", *, standby: bool = False) -> SetupPlan:
    """Return what a server needs: settings, a key, the host keys of its nodes, a unit.

    With an account the server runs as that, and a small program of root's runs the jobs of its own machine.
    `standby`: it waits while another server works on its database, and is started again when it has lost its place.
    What the unit that is there says of both holds, too: a second run, for a new node, is typed without them.
    """
    private, public = _key_pair(root)
    account, standby = _as_before(root, account, standby=standby)
    unit = (_FILES / UNIT).read_text().replace("@OARLOCK@", _command())
    unit = unit.replace("@ACCOUNT@", f"User={account}\nGroup={account}\n" if account else "")
    if standby:
        unit = unit.replace(" serve ", " serve --standby ").replace("Restart=on-failure", "Restart=always")
    settings = (_FILES / "oar.conf").read_text()
    if account:
        settings = settings.replace('NODE_ACCESS="push"\n', _OF_ACCOUNT)
    files: tuple[PlannedFile, ...] = (
        PlannedFile(SETTINGS / "oar.conf", settings, 0o640 if account else 0o600, settings=True, group=account),
        PlannedFile(KEY, private, 0o600, settings=True, secret=True, owner=account),
        PlannedFile(KEY.with_suffix(".pub"), public, settings=True),
        PlannedFile(Path("/etc/systemd/system") / UNIT, unit),
    )
    folders = [(SETTINGS, 0o755), (Path("/etc/systemd/system"), 0o755), (Path("/var/lib/oarlock"), 0o755)]
    if account:
        files += _root_program(below(root, SETTINGS / "oar.conf"), settings, public, account)
        folders += [(PROGRAM.parent, 0o755), (SUDOERS.parent, 0o755)]
    next_steps = (
        "systemctl start oarlock",
        "on every node: what `oarlock node install` writes (`oarlock setup node --from DIR` there puts it in place)"
        if account
        else f"put {KEY}.pub into root's authorized_keys on every node (or see `oarlock node install`)",
        "oarlock discover NODE… proposes their resources",
        "for login hosts elsewhere: SERVER_HOSTNAME and TLS_* in /etc/oarlock/oar.conf, and let them in:",
        "nft add rule inet filter input ip saddr 10.0.0.0/8 tcp dport 6680 accept",
    )
    return SetupPlan(
        "server",
        folders=tuple(folders),
        files=files,
        account=account,
        owned=(Path("/var/lib/oarlock"),) if account else (),
        lines=(PlannedLines(SETTINGS / "known_hosts", _host_keys(root, nodes)),) if nodes else (),
        unit=UNIT,
        next_steps=next_steps,
    )


def _as_before(root: Path, account: str, *, standby: bool) -> tuple[str, bool]:
    """Return account and `standby`, from the unit that is there where they are not given."""
    place = below(root, Path("/etc/systemd/system") / UNIT)
    unit = place.read_text() if place.exists() else ""
    user = re.search(r"^User=(\S+)$", unit, re.MULTILINE)
    return account or (user[1] if user else ""), standby or " serve --standby " in unit


_OF_ACCOUNT = """\
# The server runs as an account of its own, and jobs become their users by programs that are installed on nodes.
SERVE_EVERYBODY="yes"
NODE_ACCESS="installed"
OAR_RUNTIME_DIRECTORY="/var/lib/oarlock-node"
"""


def _root_program(there: Path, settings: str, public: str, account: str) -> tuple[PlannedFile, PlannedFile]:
    """Return the node program of the server's own machine, and the line of sudoers that starts it."""
    from oarlock.config import load  # late: a login host has neither settings nor node programs
    from oarlock.server.nodes.fleet import fixed_settings
    from oarlock.server.nodes.install import node_files

    with tempfile.TemporaryDirectory() as temporary:
        planned = Path(temporary) / "oar.conf"
        planned.write_text(there.read_text() if there.exists() else settings)
        fixed = fixed_settings(load(planned).config)
    made = node_files(fixed, key=public, program=PROGRAM, account=account)
    return PlannedFile(PROGRAM, made.program, 0o755), PlannedFile(SUDOERS, made.sudoers, 0o440)


def login(address: str, authority: Path | None) -> SetupPlan:
    """Return what a login host needs: where the server is, and the certificate of the site's own authority."""
    if not all(_SERVER.fullmatch(part) for part in address.split(",")):
        raise SetupFailed(f"`{address}` is not the address of a server.", hint="Give https://NAME:6680.")
    files = [PlannedFile(SETTINGS / "server", f"{address}\n")]
    if authority is not None:
        files.append(PlannedFile(SETTINGS / "ca.pem", _readable(authority)))
    return SetupPlan(
        "login",
        folders=((SETTINGS, 0o755),),
        files=tuple(files),
        next_steps=("each user: `oarlock token add NAME` on the server; it goes to ~/.config/oarlock/token, mode 600",),
    )


def relay(address: str, authority: Path | None, key: Path) -> SetupPlan:
    """Return what a login host with a relay needs: the key of the host, a unit, and commands that speak to it."""
    certificate = [file for file in login(address, authority).files if file.path.name == "ca.pem"]
    service = (_FILES / RELAY_UNIT).read_text().replace("@OARLOCK@", _command()).replace("@SERVER@", address)
    files = (
        PlannedFile(SETTINGS / "server", f"{RELAY_SOCKET}\n"),
        *certificate,
        PlannedFile(RELAY_KEY, _readable(key), 0o600, secret=True),
        PlannedFile(Path("/etc/systemd/system") / RELAY_UNIT, service),
    )
    return SetupPlan(
        "login",
        folders=((SETTINGS, 0o755), (Path("/etc/systemd/system"), 0o755)),
        files=files,
        unit=RELAY_UNIT,
        next_steps=("systemctl start oarlock-relay", "oarstat, as any user"),
    )


def node(folder: Path | None) -> SetupPlan:
    """Return what a node needs: nothing, or the files that `oarlock node install` wrote into a folder."""
    if folder is None:
        return SetupPlan(
            "node",
            next_steps=(
                "With NODE_ACCESS=push a node needs sshd, python3 and the server's key in root's authorized_keys.",
                "For NODE_ACCESS=installed: `oarlock node install` on the server, its folder here, and --from DIR.",
            ),
        )
    home = Path(f"/var/lib/{ACCOUNT}-account")
    files = (
        PlannedFile(PROGRAM, _readable(folder / "node"), 0o755),
        PlannedFile(home / ".ssh/authorized_keys", _readable(folder / "authorized_keys")),
        PlannedFile(SUDOERS, _readable(folder / "sudoers"), 0o440),
    )
    folders = tuple((path, 0o755) for path in (PROGRAM.parent, home / ".ssh", SUDOERS.parent))
    return SetupPlan(
        "node", folders=folders, files=files, account=ACCOUNT, next_steps=('NODE_ACCESS="installed" on the server',)
    )


def _command() -> str:
    """Return the path of the command `oarlock` of this installation, for the unit."""
    packaged = Path("/usr/bin/oarlock")
    beside = Path(sys.executable).parent / "oarlock"
    return str(packaged if packaged.exists() or not beside.exists() else beside)


def _key_pair(root: Path) -> tuple[str, str]:
    """Return the key pair that is there, else a new one."""
    place = below(root, KEY)
    if place.exists() and place.with_suffix(".pub").exists():
        return place.read_text(), place.with_suffix(".pub").read_text()
    with tempfile.TemporaryDirectory() as temporary:
        made = Path(temporary) / "key"
        if place.exists():  # interrupted between the two: the public half follows from the private one
            return place.read_text(), _run(["ssh-keygen", "-y", "-f", str(place)])
        _run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "oarlock", "-f", str(made)])
        return made.read_text(), made.with_suffix(".pub").read_text()


def _host_keys(root: Path, nodes: Sequence[str]) -> tuple[str, ...]:
    """Ask nodes for their host keys; those that are known already are not asked again."""
    for name in nodes:
        if not _NODE_NAME.fullmatch(name):
            raise SetupFailed(f"`{name}` is not the name of a node.", hint="Letters, digits, dots and dashes.")
    file = below(root, SETTINGS / "known_hosts")
    present = {line.split()[0] for line in (file.read_text() if file.exists() else "").splitlines() if line.strip()}
    wanted = [name for name in nodes if name not in present]
    if not wanted:
        return ()
    text = _run(["ssh-keyscan", "-T", str(SCAN_SECONDS), "-t", "ed25519,ecdsa,rsa", *wanted])
    lines = tuple(line for line in text.splitlines() if line and not line.startswith("#"))
    if silent := [name for name in wanted if not any(line.split()[0] == name for line in lines)]:
        raise SetupFailed(
            f"{', '.join(silent)} showed no host key within {SCAN_SECONDS} s.",
            hint="Is sshd running there, and does the name lead there? Leave it out, and run setup again for it later.",
        )
    return lines


def _readable(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        reason = getattr(problem, "strerror", None) or "it is not text"
        raise SetupFailed(f"{path} cannot be read: {reason}.", hint="Name another.") from problem


def _run(command: list[str]) -> str:
    try:
        ran = subprocess.run(command, text=True, capture_output=True, check=False, timeout=300)  # noqa: S603
    except FileNotFoundError as problem:
        raise SetupFailed(
            f"There is no program `{command[0]}` here.", hint="apt-get install openssh-client, and again."
        ) from problem
    return ran.stdout
