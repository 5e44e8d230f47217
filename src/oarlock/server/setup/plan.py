"""A plan of setup: files, folders, lines and accounts; shown as a diff, carried out, taken back."""

import difflib
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from oarlock.model.errors import Conflict
from oarlock.server.setup.journal import SetupJournal, below, checksum, write_whole

Say = Callable[[str], None]
COMMAND_SECONDS = 120


class SetupFailed(Conflict):
    """Setup could not do all of it; what was done stays, and running it again goes on from there."""


@dataclass(frozen=True, slots=True)
class PlannedFile:
    """A file with its whole content. `settings`: an administrator's own one is as good as ours, and stays."""

    path: Path
    text: str
    mode: int = 0o644
    settings: bool = False
    secret: bool = False  # its content is not shown
    owner: str = ""  # the account that gets it
    group: str = ""


@dataclass(frozen=True, slots=True)
class PlannedLines:
    """Lines that a file must have, among others'."""

    path: Path
    lines: tuple[str, ...]
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What a role needs, in the order in which it is done, and what is left to the administrator."""

    role: str
    folders: tuple[tuple[Path, int], ...] = ()
    files: tuple[PlannedFile, ...] = ()
    lines: tuple[PlannedLines, ...] = ()
    account: str = ""
    unit: str = ""
    owned: tuple[Path, ...] = ()  # folders that the account gets
    next_steps: tuple[str, ...] = field(default=())


def show(plan: SetupPlan, root: Path) -> Iterator[str]:
    """Yield what would change: a line for each folder and account, a diff for each file."""
    journal = SetupJournal(root, plan.role)
    if plan.account and not _has_account(root, plan.account):
        yield f"account {plan.account} would be made"
    for path, mode in plan.folders:
        if not below(root, path).is_dir():
            yield f"folder {path} would be made, mode {mode:o}"
    for file in plan.files:
        yield from _show_file(file, below(root, file.path), journal)
    for part in plan.lines:
        before = _text(below(root, part.path))
        yield from _diff(part.path, before, before + _missing(before, part.lines))


def _show_file(file: PlannedFile, place: Path, journal: SetupJournal) -> Iterator[str]:
    before = _text(place)
    if before == file.text:
        return
    if _is_foreign(file, place, journal):
        yield f"{file.path} is not as setup wrote it and would stay; the diff is to what setup would write"
    if file.secret:
        yield f"{file.path} would be written, mode {file.mode:o}"
    else:
        yield from _diff(file.path, before, file.text)


def _diff(path: Path, before: str, after: str) -> Iterator[str]:
    old = str(path) if before else "/dev/null"
    changes = difflib.unified_diff(before.splitlines(), after.splitlines(), old, str(path), lineterm="")
    yield from changes


def carry_out(plan: SetupPlan, root: Path, say: Say) -> list[str]:
    """Do what is not done yet; return what was left because somebody else wrote it."""
    journal, left = SetupJournal(root, plan.role), []
    try:
        _make_account(plan, root, journal, say)
        for path, mode in plan.folders:
            _make_folder(path, mode, root, journal, say)
            if path in plan.owned:
                _give(below(root, path), root, plan.account, plan.account)
        for file in plan.files:
            left += _write_file(file, root, journal, say)
        for part in plan.lines:
            _add_lines(part, root, journal, say)
    except OSError as problem:
        where = problem.filename or "the disk"
        raise SetupFailed(
            f"Setup stopped at {where}: {problem.strerror}.",
            hint="What was done stays. Run the same command again once there is room and right to write: it goes on.",
        ) from problem
    _enable(plan, root, journal, say)
    return left


def _make_account(plan: SetupPlan, root: Path, journal: SetupJournal, say: Say) -> None:
    if not plan.account or _has_account(root, plan.account):
        return
    journal.accounts = [*{*journal.accounts, plan.account}]
    journal.save()
    _run(["useradd", *_prefix(root), "--system", "--user-group", "--create-home", "--home-dir",
          f"/var/lib/{plan.account}-account", "--shell", "/bin/sh", plan.account])  # fmt: skip
    say(f"made account {plan.account}")


def _make_folder(path: Path, mode: int, root: Path, journal: SetupJournal, say: Say) -> None:
    place = below(root, path)
    if place.is_dir():
        return
    for parent in (*reversed(path.parents), path):
        if not below(root, parent).is_dir() and str(parent) not in journal.folders:
            journal.folders.append(str(parent))
    journal.save()
    place.mkdir(parents=True, exist_ok=True)
    place.chmod(mode)
    say(f"made folder {path}")


def _write_file(file: PlannedFile, root: Path, journal: SetupJournal, say: Say) -> list[str]:
    place = below(root, file.path)
    content = file.text.encode()
    if place.exists() and place.read_bytes() == content:
        return []
    if _is_foreign(file, place, journal):
        say(f"kept {file.path}, which is not as setup wrote it")
        return [] if file.settings else [str(file.path)]
    journal.files[str(file.path)] = checksum(content)
    journal.save()
    write_whole(place, content, file.mode)
    _give(place, root, file.owner, file.group)
    say(f"wrote {file.path}")
    return []


def _give(place: Path, root: Path, owner: str, group: str) -> None:
    """Make an account of that machine the owner of a file or folder; what is empty stays root's."""
    if owner or group:
        os.chown(place, _number(root, "passwd", owner), _number(root, "group", group))


def _number(root: Path, file: str, name: str) -> int:
    for line in _text(below(root, Path("/etc") / file)).splitlines():
        if name and line.startswith(f"{name}:"):
            return int(line.split(":")[2])
    return -1


def _is_foreign(file: PlannedFile, place: Path, journal: SetupJournal) -> bool:
    """Return whether a file is there that setup did not write, or that was changed since."""
    return place.exists() and journal.files.get(str(file.path)) != checksum(place.read_bytes())


def _add_lines(part: PlannedLines, root: Path, journal: SetupJournal, say: Say) -> None:
    place = below(root, part.path)
    before = _text(place)
    added = _missing(before, part.lines)
    if not added:
        return
    noted = journal.lines.setdefault(str(part.path), [])
    noted += [line for line in added.splitlines() if line not in noted]
    journal.save()
    gap = "\n" if before and not before.endswith("\n") else ""
    write_whole(place, (before + gap + added).encode(), part.mode)
    say(f"added {len(added.splitlines())} lines to {part.path}")


def _missing(before: str, lines: tuple[str, ...]) -> str:
    there = set(before.splitlines())
    return "".join(f"{line}\n" for line in lines if line not in there)


def _enable(plan: SetupPlan, root: Path, journal: SetupJournal, say: Say) -> None:
    """Have systemd read the unit, which may have changed, and enable it; starting it is the administrator's."""
    if not plan.unit or not _systemd_runs(root):
        return
    _run(["systemctl", "daemon-reload"])
    if plan.unit in journal.units:
        return
    journal.units.append(plan.unit)
    journal.save()
    _run(["systemctl", "enable", plan.unit])
    say(f"enabled {plan.unit}")


def take_back(role: str, root: Path, say: Say) -> list[str]:
    """Remove what setup wrote for a role and nothing else; return what stays because it was changed or is in use."""
    journal, left = SetupJournal(root, role), []
    had_units = bool(journal.units)
    for unit in [*journal.units]:
        if _systemd_runs(root):
            _run(["systemctl", "disable", "--now", unit])
        journal.units.remove(unit)
        journal.save()
        say(f"stopped and disabled {unit}")
    for name in [*journal.files]:
        left += _remove_file(Path(name), root, journal, say)
    if had_units and _systemd_runs(root):
        _run(["systemctl", "daemon-reload"])
    for name in [*journal.lines]:
        _remove_lines(Path(name), root, journal, say)
    for account in [*journal.accounts]:
        if _has_account(root, account):
            _run(["userdel", *_prefix(root), account])
            say(f"removed account {account}")
        shutil.rmtree(below(root, Path(f"/var/lib/{account}-account")), ignore_errors=True)
        journal.accounts.remove(account)
        journal.save()
    for name in sorted(journal.folders, key=len, reverse=True):
        left += _remove_folder(Path(name), root, journal, say)
    journal.save()
    return left


def _remove_file(path: Path, root: Path, journal: SetupJournal, say: Say) -> list[str]:
    place, noted = below(root, path), journal.files[str(path)]
    stays = place.exists() and checksum(place.read_bytes()) != noted
    if place.exists() and not stays:
        place.unlink()
        say(f"removed {path}")
    del journal.files[str(path)]
    journal.save()
    return [f"{path} was changed since"] if stays else []


def _remove_lines(path: Path, root: Path, journal: SetupJournal, say: Say) -> None:
    place, ours = below(root, path), set(journal.lines[str(path)])
    if place.exists():
        rest = [line for line in _text(place).splitlines() if line not in ours]
        if rest:
            write_whole(place, "".join(f"{line}\n" for line in rest).encode(), place.stat().st_mode & 0o777)
        else:
            place.unlink()
        say(f"removed our lines from {path}")
    del journal.lines[str(path)]
    journal.save()


def _remove_folder(path: Path, root: Path, journal: SetupJournal, say: Say) -> list[str]:
    place, left = below(root, path), []
    try:
        place.rmdir()
        say(f"removed folder {path}")
    except FileNotFoundError:
        pass
    except OSError:  # not empty: what is in it is not setup's
        left = [f"folder {path} is not empty"]
    journal.folders.remove(str(path))
    return left


def _has_account(root: Path, name: str) -> bool:
    return any(line.startswith(f"{name}:") for line in _text(below(root, Path("/etc/passwd"))).splitlines())


def _prefix(root: Path) -> list[str]:
    return [] if root == Path("/") else ["--prefix", str(root)]


def _systemd_runs(root: Path) -> bool:
    return root == Path("/") and Path("/run/systemd/system").is_dir()


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""


def _run(command: list[str]) -> None:
    """Run a program of the system, or raise `SetupFailed` with what it printed last."""
    try:
        ran = subprocess.run(command, text=True, capture_output=True, check=False, timeout=COMMAND_SECONDS)  # noqa: S603
    except FileNotFoundError as problem:
        raise SetupFailed(
            f"There is no program `{command[0]}` here.", hint="Install it and run setup again."
        ) from problem
    if ran.returncode:
        last = (ran.stderr.strip().splitlines() or [f"it ended with {ran.returncode}"])[-1]
        raise SetupFailed(f"`{' '.join(command)}` failed: {last}", hint="What was done before stays; run setup again.")
