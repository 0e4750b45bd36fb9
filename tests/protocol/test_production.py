"""Every decision of `strandline.protocol` is one that production makes: the models explore what runs, and nothing else.

A function counts as used if code outside `protocol`, `sim` and `testing` names it, or a function of `protocol` that is
used does. Words in comments and docstrings do not count.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import strandline

SOURCE = Path(strandline.__file__).parent
PACKAGE = "strandline.protocol"
Name = tuple[str, str]
"""A module of `protocol`, and what it defines."""


def _modules() -> dict[str, ast.Module]:
    folder = SOURCE / "protocol"
    return {path.stem: ast.parse(path.read_text()) for path in folder.glob("*.py") if path.stem != "__init__"}


MODULES = _modules()
DEFINED = {
    (module, node.name): node
    for module, tree in MODULES.items()
    for node in tree.body
    if isinstance(node, ast.FunctionDef | ast.ClassDef)
}
FUNCTIONS = sorted(
    name for name, node in DEFINED.items() if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
)


def _imported(tree: ast.Module) -> dict[str, Name]:
    """Return the local names that stand for modules of `protocol` (the second part empty) or for what they define."""
    found: dict[str, Name] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == PACKAGE:
            found |= {alias.asname or alias.name: (alias.name, "") for alias in node.names if alias.name in MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(f"{PACKAGE}."):
            module = (node.module or "").removeprefix(f"{PACKAGE}.")
            found |= {alias.asname or alias.name: (module, alias.name) for alias in node.names}
    return found


def _named(node: ast.AST, names: dict[str, Name]) -> Iterator[Name]:
    """Yield what a piece of code names of `protocol`."""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
            module, own = names.get(part.value.id, ("", ""))
            yield (module, part.attr) if not own else (module, own)
        elif isinstance(part, ast.Name) and part.id in names:
            yield names[part.id]


@cache
def _used() -> set[Name]:
    """Return everything that production reaches."""
    waiting: list[Name] = []
    for path in SOURCE.rglob("*.py"):
        text = path.read_text()
        if path.relative_to(SOURCE).parts[0] not in ("protocol", "sim", "testing") and PACKAGE in text:
            tree = ast.parse(text)
            waiting += _named(tree, _imported(tree))
    used: set[Name] = set()
    while waiting:
        name = waiting.pop()
        if name in DEFINED and name not in used:
            used.add(name)
            module = name[0]
            own = {defined: (at, defined) for at, defined in DEFINED if at == module}
            waiting += _named(DEFINED[name], own | _imported(MODULES[module]))
    return used


@pytest.mark.parametrize(("module", "function"), FUNCTIONS)
def test_production_makes_each_decision(module: str, function: str) -> None:
    assert (module, function) in _used(), (
        f"no production code uses strandline.protocol.{module}.{function}: what the models show of it holds for nothing"
    )


def test_there_are_decisions_to_look_for() -> None:
    assert ("repairs", "next_repair_step") in FUNCTIONS
    assert len(FUNCTIONS) > 60
