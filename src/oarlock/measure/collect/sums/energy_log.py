"""Energy out of the row logs of nodes: what a process that was killed had logged, and not handed over, is booked again.

The row of a sample has what the meters of a node say; a note beside it, appended by the same `write`, says what jobs
held. A row of a management controller that the collector read itself has nothing but power.
"""

from array import array
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from oarlock.measure.collect.files.places import SamplePlaces, day_of
from oarlock.measure.collect.files.rowlog import LogContent, Names, read_end
from oarlock.measure.energy.division import DAY, HeldByJob, NodeState, believable, energy_columns
from oarlock.measure.energy.ledger import EnergyLedger, PowerReading
from oarlock.measure.energy.meter import read_node
from oarlock.node.sources.probe import series, split

HELD = "held"
"""The word of the note that says what jobs held."""

_MILLI = 1000
_BEFORE = 400  # seconds: what is this much older than the booked instant is not needed to go on from it
_UNKNOWN, _OLDEST = 3600, 2 * DAY  # seconds: how far back logs are read of a node that was not, or was, booked
_OF_CONTROLLER = "power_"
_METER = 'meter="redfish"'

Holdings = Mapping[int, HeldByJob]


def noted_holdings(jobs: Holdings, *, with_time: bool) -> Holdings:
    """Return what is noted of what jobs hold: their CPU seconds only if energy goes by them."""
    return jobs if with_time else {job: HeldByJob(held.cores, None, held.gpus) for job, held in jobs.items()}


def note_of(jobs: Holdings) -> dict[str, Any]:
    """Return the note of what jobs hold: cores, CPU seconds if energy goes by them, and GPUs."""
    return {HELD: {str(job): [held.cores, held.cpu_seconds, sorted(held.gpus)] for job, held in sorted(jobs.items())}}


def _holdings(note: Mapping[str, Any]) -> dict[int, HeldByJob]:
    return {int(job): HeldByJob(cores, seconds, frozenset(gpus)) for job, (cores, seconds, gpus) in note[HELD].items()}


def controller_row(watts: float) -> dict[str, float]:
    """Return the values of a row that a management controller told."""
    return {series("power_watts", meter="redfish"): watts}


def _is_of_controller(names: Names) -> bool:
    return bool(names) and all(name.startswith(_OF_CONTROLLER) and _METER in name for name in names)


def replay(places: SamplePlaces, ledger: EnergyLedger, booked: Mapping[str, int], *, now: float) -> None:
    """Book what the logs of all nodes have beyond the instants (milliseconds) up to which they are booked."""
    for folder in sorted(places.nodes.iterdir()):
        if folder.is_dir():
            # Of a node without a meter nothing was ever booked: its log is not read from its beginning.
            until = booked.get(folder.name, (now - _UNKNOWN) * _MILLI)
            since = int(max(until, (now - _OLDEST) * _MILLI) - _BEFORE * _MILLI)
            for event in _events_of(folder, since):
                if isinstance(event, PowerReading):
                    ledger.take_reading(folder.name, event)
                else:
                    ledger.take(folder.name, event)


def _recent_logs(folder: Path, since: float) -> list[Path]:
    """Return the logs of a node that have something since an instant, by day."""
    first = f"{datetime.fromtimestamp(since, UTC):%Y-%m-%d}"
    return sorted(path for path in folder.glob("*.rows") if path.name >= first and day_of(path))


def _events_of(folder: Path, since: int) -> list[NodeState | PowerReading]:
    """Return what the logs of a node say since an instant (milliseconds), by time, behind the last sample before it.

    That one may be long ago, of the day before even: a controller goes on telling where samples have ceased.
    """
    logs = _recent_logs(folder, since / _MILLI - DAY)
    before = [path for path in logs if day_of(path) + DAY <= since / _MILLI]
    events = [event for path in logs[len(before) :] for event in _events(path, since)]
    if before and not (events and isinstance(events[0], NodeState) and events[0].reading.at * _MILLI < since):
        events = [*list(_events(before[-1], since))[-1:], *events]
    return events


def _events(path: Path, since: int) -> Iterator[NodeState | PowerReading]:
    """Yield what a log says since an instant (milliseconds), by time, behind the last sample before it."""

    def choose(names: Names) -> Names:
        if _is_of_controller(names):
            return names
        return tuple(names[place] for place in energy_columns(names, of_node=True))

    def reaches_back(content: LogContent) -> bool:
        samples = (group for names, group in content.groups.items() if not _is_of_controller(names))
        return any(at <= since for group in samples for at in group.times[:1])

    _, content = read_end(path, choose, reaches_back)
    notes = sorted((note.at, place, note.about) for place, note in enumerate(content.notes) if HELD in note.about)
    held: dict[int, HeldByJob] = {}
    rows = _rows(content)
    samples_before = [place for place, row in enumerate(rows) if row[0] < since and not _is_of_controller(row[1])]
    last_before = samples_before[-1] if samples_before else -1
    for place, (at, names, values) in enumerate(rows):
        while notes and notes[0][0] <= at:
            held = _holdings(notes.pop(0)[2])
        if at < since and place != last_before:
            continue
        metered = believable(dict(zip(names, values, strict=True)))
        if not _is_of_controller(names):
            yield NodeState(read_node(at / _MILLI, metered), held)
        elif metered:
            yield PowerReading(at / _MILLI, sum(value for name, value in metered.items() if is_power(name)))


def is_power(name: str) -> bool:
    """Return whether a series is the power that a meter tells now, not its mean or most."""
    return split(name)[0] == "power_watts"


def _rows(content: LogContent) -> list[tuple[int, Names, Sequence[float]]]:
    """Return the rows of a log by time; of the same instant, the sample comes before the controller."""
    rows: list[tuple[int, Names, Sequence[float]]] = []
    for names, group in content.groups.items():
        values, width = array("d", bytes(group.packed)), len(names)
        rows += [(at, names, values[row * width : (row + 1) * width]) for row, at in enumerate(group.times)]
    return sorted(rows, key=lambda row: (row[0], _is_of_controller(row[1])))
