"""The check of what a node's Python must have."""

from scripts.node_pythons import absent_names


def test_names_that_this_python_does_not_have_are_reported():
    text = (
        "import os, importlib.machinery as machinery\nfrom json import undumps, dumps\n"
        "from oarlock.node import nothing\n"
        "os.fsync(1), os.path.join, os.unsync(2), machinery.ModuleSpec, machinery.Gone, dumps.missing"
    )
    assert sorted(absent_names(text)) == ["importlib.machinery.Gone", "json.undumps", "os.unsync"]
