"""Names of series: one tuple for equal tables, by which logs recognise them, and how many a node may have."""

from oarlock.measure.collect.files.rowlog import Names
from oarlock.node.measure.wire import MOST_SERIES

_DAY_MS = 86_400_000
_FEW_SERIES, _FEW_TABLES = 50_000, 16  # of a node: below it they are not compared; tables that are recognised
_MOST_TABLES, _MOST_NAMES = 10_000, 1_000_000  # that are shared, and names in them


class SharedNames:
    """Tables of names, each once, and each name once. All are forgotten when they are many: executables come and go."""

    __slots__ = ("_count", "_names", "_tables")

    def __init__(self) -> None:
        self._tables: dict[Names, Names] = {}
        self._names: dict[str, str] = {}  # tables of nodes differ by a few names: the others are not kept twice
        self._count = 0

    def share(self, names: Names) -> Names:
        """Return the one tuple that stands for equal ones; the one that is given is not kept."""
        shared = self._tables.get(names)
        if shared is None:
            self._count += len(names)
            if len(self._tables) > _MOST_TABLES or self._count > _MOST_NAMES:
                self._tables, self._names, self._count = {}, {}, len(names)
            shared = tuple([self._names.setdefault(name, name) for name in names])
            self._tables[shared] = shared
        return shared


class NodeSeries:
    """The series that a node has on a day: 200,000 at most, since users choose the names of executables."""

    __slots__ = ("_counted", "_day", "_names", "_tables", "is_noted")

    def __init__(self) -> None:
        self._day = -1
        self._begin(-1)

    def _begin(self, day: int) -> None:
        self._day, self._counted, self.is_noted = day, 0, False
        self._tables: dict[int, Names] = {}
        self._names: set[str] = set()

    def admit(self, names: Names, instant: int) -> bool:
        """Return whether all of these series may be taken (milliseconds). The same tuple costs nothing again."""
        if instant // _DAY_MS != self._day:
            self._begin(instant // _DAY_MS)
        if id(names) in self._tables:
            return True
        self._counted += len(names)
        if self._counted > _FEW_SERIES:  # only now it matters which of them are the same
            if not self._names:
                self._names.update(*self._tables.values())
            if len(self._names.union(names)) > MOST_SERIES:
                return False
            self._names.update(names)
        if len(self._tables) >= _FEW_TABLES:
            self._tables = {}
        self._tables[id(names)] = names  # kept, since its id is its name here
        return True
