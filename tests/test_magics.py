"""Every file format has a magic of its own, so that a file says which format it is."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

SOURCE = Path(__file__).parent.parent / "src" / "strandline"
SHARED = {
    b"STRANDLF": {"broker/streams/checkpoint.py", "journal/frontier.py"},  # version 1 of a stream's checkpoint
    b"PGSS": {"fold/log_format.py", "fold/backends.py"},  # one format, told from SQLite before it is opened
    b"SQLite format 3\0": {  # SQLite's own
        "fold/backends.py",
        "replica/btree.py",
        "replica/connections.py",
        "scan/sources/sqlite_file.py",
    },
}
"""Magics that stand in two modules, and why."""


def _names(target: ast.expr) -> Iterator[str]:
    return (node.id for node in ast.walk(target) if isinstance(node, ast.Name))


@cache
def _trees() -> dict[str, ast.Module]:
    """Return the modules that have a magic, parsed, by their paths: to parse all of them would take seconds."""
    sources = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in sorted(SOURCE.rglob("*.py"))}
    return {name: ast.parse(source) for name, source in sources.items() if "MAGIC" in source or "STRANDL" in source}


def _magics(tree: ast.Module) -> Iterator[bytes | int]:
    """Yield the constants that a module assigns to a name with MAGIC in it."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any("MAGIC" in name for target in targets for name in _names(target)):
            assert isinstance(node, ast.Assign | ast.AnnAssign)
            for part in ast.walk(node.value) if node.value is not None else ():
                if isinstance(part, ast.Constant) and isinstance(part.value, bytes | int):
                    yield part.value


def _modules() -> dict[bytes | int, set[str]]:
    found: dict[bytes | int, set[str]] = {}
    for name, tree in _trees().items():
        for magic in _magics(tree):
            found.setdefault(magic, set()).add(name)
    return found


def test_no_magic_stands_in_two_modules() -> None:
    twice = {magic: modules for magic, modules in _modules().items() if len(modules) > 1}
    assert twice == SHARED


def test_the_magics_of_our_binary_files_are_found() -> None:
    ours = {magic for magic in _modules() if isinstance(magic, bytes) and magic.startswith(b"STRANDL")}
    written = {
        node.value
        for tree in _trees().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes) and node.value.startswith(b"STRANDL")
    }
    assert ours == written
    assert len(ours) >= 8
