"""Print modules past 400 lines and functions past 70: places to look, not failures."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("src", "tests", "benchmarks", "tools")
MODULE_LINES_MAX = 400
FUNCTION_LINES_MAX = 70


def places(name: str, source: str) -> Iterator[str]:
    """Yield a line for the module, if it is long, and for each long function in it."""
    length = len(source.splitlines())
    if length > MODULE_LINES_MAX:
        yield f"{name}: {length} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES_MAX:
                yield f"{name}: {node.name}() has {length} lines"


def main() -> None:
    """Look through the whole repository."""
    paths = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
    found = [place for path in paths for place in places(str(path.relative_to(ROOT)), path.read_text())]
    print("Places to look (modules past 400 lines, functions past 70):" if found else "No places to look.")
    for place in found:
        print(f"  {place}")


if __name__ == "__main__":
    main()
