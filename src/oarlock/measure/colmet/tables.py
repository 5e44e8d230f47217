"""What we measured, as rows of Colmet's tables: its columns, its units, and its ways to say that there is nothing.

A column that nothing was measured for holds −1. Counters without names of their own (`counter_1` …) stand for what a
mapping says; one that a processor lacks holds 0.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from oarlock.measure.collect.files.hdf5 import Track
from oarlock.measure.colmet import maps, records
from oarlock.measure.colmet.meanings import MEANINGS, RAPL_DOMAINS, SOCKETS, ColmetMeaning, perfhw_meaning
from oarlock.measure.energy.meter import labels_of
from oarlock.node.sources.job import perf

NOTHING, UNSUPPORTED = -1, 0
NO_COUNTER = "no_counter"
NOT_SUPPORTED = "counter_not_supported_by_hardware"
_UNNAMED = "unknown"
_ZONE = re.compile(r"thermal_zone(\d+)")
_TELLING = ("mode", "domain", "socket", "meter", "sensor")  # labels that tell columns apart; others are added up

JOB_TABLES = ("taskstats", "jobprocstats", "perfhwstats")
NODE_TABLES = ("procstats", "infinibandstats", "lustrestats", "temperaturestats", "RAPLstats", "ipmipowerstats")


class ColumnSource(NamedTuple):
    """Where a column's values come from: series that are added up, or one value for all rows.

    Of a counter that `grows`, a row has what was added since the row before; before the first one that is all of it if
    the counter began `with_job`, and unknown otherwise.
    """

    series: tuple[str, ...] = ()
    unit: float = 1.0
    grows: bool = False
    with_job: bool = True
    constant: int = NOTHING


class TablePlan(NamedTuple):
    """How the rows of a table are made. `left_out` names what Colmet has no column for."""

    columns: Mapping[str, ColumnSource]
    mapping: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class TableRow(NamedTuple):
    """A row: milliseconds, and the values of all columns in their order."""

    at: int
    values: tuple[float, ...]


def plan_table(backend: str, names: Collection[str], events: Sequence[str] = ()) -> TablePlan | None:
    """Plan the table of a backend from the series that there are; None if it would be empty.

    `events` are the counters of `perfhwstats`: names of events, as `counted_events` returns them.
    """
    match backend:
        case "perfhwstats":
            plan = _perfhw(names, events)
        case "RAPLstats":
            plan = _rapl(names)
        case "temperaturestats":
            plan = _temperature(names)
        case _:
            plan = TablePlan(dict(_named(MEANINGS[backend], names)))
    return plan if any(source.series for source in plan.columns.values()) else None


def counted_events(names: Iterable[str]) -> list[str]:
    """Return the events that were counted, those of Colmet first; unnamed counters behind them."""
    present = set(names)
    named = [event for event in (*maps.EVENTS, *perf.BEYOND_COLMET) if perf.metric(event) in present]
    return named + [name for name in records.PERFHW if MEANINGS["perfhwstats"][name].series in present]


def _named(meanings: Mapping[str, ColmetMeaning], names: Collection[str]) -> Iterator[tuple[str, ColumnSource]]:
    for column, meaning in meanings.items():
        yield column, ColumnSource(matching(meaning.series, names), meaning.unit, meaning.grows)


def matching(wanted: str, names: Collection[str]) -> tuple[str, ...]:
    """Return the series of a metric whose labels are those that tell columns apart."""
    name, labels = labels_of(wanted)
    telling = {label: labels[label] for label in _TELLING if label in labels}
    return tuple(
        series
        for series in names
        if series.startswith(name) and labels_of(series)[0] == name and telling.items() <= labels_of(series)[1].items()
    )


def _perfhw(names: Collection[str], events: Sequence[str]) -> TablePlan:
    columns, lines = {}, []
    for place, column in enumerate(records.PERFHW):
        event = events[place] if place < len(events) else ""
        unnamed = event in MEANINGS["perfhwstats"]
        meaning = MEANINGS["perfhwstats"][event] if unnamed else perfhw_meaning(event) if event else None
        series = (meaning.series,) if meaning and meaning.series in names else ()
        columns[column] = ColumnSource(series, meaning.unit if meaning else 1.0, grows=True)
        lines.append(f"counter{place + 1},{_UNNAMED if unnamed else event or NO_COUNTER}")
    return TablePlan(columns, tuple(lines), tuple(events[len(records.PERFHW) :]))


def _rapl(names: Collection[str]) -> TablePlan:
    energies = [MEANINGS["RAPLstats"][column] for column in records.RAPL[::2]]
    series = [matching(meaning.series, names) for meaning in energies]
    columns, lines = {}, []
    for place, meaning in enumerate(energies):
        socket, domain = divmod(place, len(RAPL_DOMAINS))
        processor = series[socket * len(RAPL_DOMAINS) : (socket + 1) * len(RAPL_DOMAINS)]
        energy, span = records.RAPL[2 * place : 2 * place + 2]
        if series[place]:
            columns[energy] = ColumnSource(series[place], meaning.unit, grows=True, with_job=False)
            columns[span] = ColumnSource()  # wraps are corrected already, so the range is not kept
            what = f"energy_microjoule,package-{socket},zone_{RAPL_DOMAINS[domain]}", f"{NO_COUNTER},,"
        else:
            columns[energy] = columns[span] = ColumnSource(constant=UNSUPPORTED if any(processor) else NOTHING)
            what = (f"{NOT_SUPPORTED if any(processor) else NO_COUNTER},,",) * 2
        lines += [f"{column},{words}" for column, words in zip((energy, span), what, strict=True)]
    zones = [labels_of(name)[1] for name in names if name.startswith("rapl_energy_joules_total")]
    left_out = {_zone_name(zone) for zone in zones if not _has_column(zone)}
    return TablePlan(columns, tuple(lines), tuple(sorted(left_out)))


def _has_column(zone: Mapping[str, str]) -> bool:
    socket = zone.get("socket", "")
    return zone.get("domain") in RAPL_DOMAINS and socket.isdigit() and int(socket) < SOCKETS


def _zone_name(zone: Mapping[str, str]) -> str:
    whole = f"package-{zone['socket']}" if zone.get("socket") else "the machine"
    return f"{zone.get('domain', '')} of {whole}"


def _temperature(names: Collection[str]) -> TablePlan:
    chips: dict[int, tuple[str, str]] = {}
    others = []
    for series in names:
        name, labels = labels_of(series)
        zone = _ZONE.fullmatch(labels.get("sensor", ""))
        if name == "temperature_celsius" and zone and int(zone[1]) < len(records.TEMPERATURE):
            chips[int(zone[1])] = series, labels.get("chip", "")
        elif name == "temperature_celsius":
            others.append(f"{labels.get('chip', '')} {labels.get('sensor', '')}".strip())
    columns, lines = {}, []
    for place, column in enumerate(records.TEMPERATURE):
        series, chip = chips.get(place, ("", ""))
        columns[column] = ColumnSource((series,) if series else ())
        lines.append(f"{column}, {f'{chip}_{place}' if series else 'no counter'}")
    return TablePlan(columns, tuple(lines), tuple(sorted(others)))


def rows_of(plan: TablePlan, tracks: Iterable[Track]) -> Iterator[TableRow]:
    """Yield the rows of one host, oldest first; without the first one if nobody knows what was added before it."""
    wanted = {series for source in plan.columns.values() for series in source.series}
    instants: dict[int, dict[str, float]] = {}
    for track in tracks:
        if track.series in wanted:
            for at, value in zip(track.times, track.most, strict=True):
                instants.setdefault(at, {})[track.series] = value
    before: dict[str, float] = {}
    in_order = sorted(instants)
    if not all(source.with_job for source in plan.columns.values()):
        before, in_order = instants[in_order[0]], in_order[1:]
    for at in in_order:
        values = instants[at]
        row = tuple(_value(source, values, before) for source in plan.columns.values())
        before |= values
        yield TableRow(at, row)


def _value(source: ColumnSource, values: Mapping[str, float], before: Mapping[str, float]) -> float:
    present = [series for series in source.series if series in values]
    if not present:
        return source.constant
    if source.grows:
        return sum(_added(before.get(series), values[series], source) for series in present) / source.unit
    return sum(values[series] for series in present) / source.unit


def _added(before: float | None, now: float, source: ColumnSource) -> float:
    """Return what a counter counted since the row before; one that fell began again."""
    if before is not None and before <= now:
        return now - before
    return now if source.with_job else 0.0
