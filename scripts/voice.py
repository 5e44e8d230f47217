"""Refuse words that hide what a thing is: in docstrings and in names of variables, functions and classes below `src/`.

The glossary (docs/glossary.md) has the words to use instead. `ALLOWED` counts what is left from before the rule; a
count may only fall: where fewer are left than it says, the number here has to follow. Standard library only.
"""

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src"
OPENINGS = frozenset({"Give", "Gives", "Say", "Says", "Tell", "Tells", "Let", "Lets", "Hear", "Hears"})
VARIABLES = frozenset({"one", "told", "found", "known", "asked", "said"})
ALLOWED: Mapping[str, int] = {}


def breaches(path: str, text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind and the place of every banned opening, function and variable in one file.

    Fields of a class are left alone: they are names on the wire or in a table.
    """
    tree = ast.parse(text)
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    fields = {id(item.target) for node in classes for item in node.body if isinstance(item, ast.AnnAssign)}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.strip("_") in VARIABLES:
            yield "function", f"{path}:{node.lineno}: a function is called `{node.name}`"
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            opening = (ast.get_docstring(node) or "").split(" ", 1)[0]
            if opening in OPENINGS:
                yield "docstring", f"{path}:{getattr(node, 'lineno', 1)}: a docstring begins with `{opening}`"
        elif isinstance(node, ast.Name) and _is_banned(node, fields):
            yield "variable", f"{path}:{node.lineno}: a variable is called `{node.id}`"
        elif isinstance(node, ast.arg) and node.arg in VARIABLES:
            yield "variable", f"{path}:{node.lineno}: a parameter is called `{node.arg}`"


def _is_banned(node: ast.Name, fields: set[int]) -> bool:
    return isinstance(node.ctx, ast.Store) and node.id in VARIABLES and id(node) not in fields


def doubled_classes(files: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the public class names that stand in more than one place."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    for name, paths in sorted(places.items()):
        if len(paths) > 1:
            yield "class", f"{paths[0]}: `{name}` is also a class of {', '.join(paths[1:])}"


def verdict(found: Iterable[tuple[str, str]], allowed: Mapping[str, int]) -> list[str]:
    """Return the complaints: kinds with more breaches than are allowed, and allowances that are too large by now."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    for kind, place in found:
        places[kind].append(place)
    counts = Counter({kind: len(lines) for kind, lines in places.items()})
    complaints = []
    for kind in sorted({*counts, *allowed}):
        most = allowed.get(kind, 0)
        if counts[kind] > most:
            complaints += [*places[kind], f"{kind}: {counts[kind]} breaches, {most} are allowed; see docs/glossary.md"]
        elif counts[kind] < most:
            complaints.append(
                f"{kind}: {counts[kind]} breaches are left; lower its number in scripts/voice.py from {most}"
            )
    return complaints


def main() -> int:
    """Check every file of the package; return 1 and print the complaints if there are any."""
    files = {str(path.relative_to(SOURCE)): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    found = [breach for path, text in files.items() for breach in breaches(path, text)]
    complaints = verdict([*found, *doubled_classes(files)], ALLOWED)
    for line in complaints:
        print(line)
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
