"""How commands print: tables for people, JSON for programs, progress on a terminal only.

With `--json`, each record is one JSON object on a line of its own, so a long listing streams and a short one is still a
single object. Progress and messages go to standard error and never mix with results.
"""

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from strandline.lazy_imports import deferred

if TYPE_CHECKING:
    import rich.console as rich_console
    import rich.progress as rich_progress
    import rich.table as rich_table
    import rich.text as rich_text
else:  # a command that prints no table needs none of it
    rich_console, rich_progress = deferred("rich.console"), deferred("rich.progress")
    rich_table, rich_text = deferred("rich.table"), deferred("rich.text")

Record = Mapping[str, object]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one object per line.")]

_line_lock = threading.Lock()
PIPE_WIDTH = 1000  # wide enough that a table in a pipe is never folded


def emit(record: Record, *, as_json: bool) -> None:
    """Print one record: a JSON object, or a table of names and values."""
    if as_json:
        print(to_json(record))
        return
    table = rich_table.Table(box=None, show_header=False)
    for name, value in record.items():
        table.add_row(rich_text.Text(name, style="bold"), _cell(value))
    _console().print(table)


def emit_rows(rows: Iterable[Record], *, as_json: bool, title: str | None = None) -> None:
    """Print many records of one shape: a JSON object per line as they come, or one table."""
    if as_json:
        for row in rows:
            print(to_json(row))
        return
    table: rich_table.Table | None = None
    for row in rows:
        if table is None:
            table = rich_table.Table(title=title)
            for name, value in row.items():
                table.add_column(name, justify="right" if isinstance(value, int | float) else "left")
        table.add_row(*map(_cell, row.values()))
    if table is not None:
        _console().print(table)


def print_line(line: str, *, to_errors: bool = False) -> None:
    """Print a line at once and whole, though other threads print theirs."""
    with _line_lock:
        print(line, file=sys.stderr if to_errors else sys.stdout, flush=True)


def to_json(record: Record) -> str:
    """Format a record on one line; paths become text, enumerations their names, dataclasses objects."""
    return json.dumps(record, default=_plain, ensure_ascii=False)


@contextmanager
def progress(description: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error while the block runs; yields `advance(by)`, which is silent off a terminal."""
    console = rich_console.Console(stderr=True)
    text = rich_progress.TextColumn("{task.description}", markup=False)
    columns = (text, rich_progress.BarColumn(), rich_progress.TimeRemainingColumn())
    is_off = not console.is_terminal
    with rich_progress.Progress(*columns, console=console, transient=True, disable=is_off) as bar:
        task = bar.add_task(description, total=total)
        yield lambda by: bar.advance(task, by)


def _console() -> "rich_console.Console":
    return rich_console.Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)


def _cell(value: object) -> "rich_text.Text":
    return rich_text.Text(_shown(value))  # Text, so that brackets in data are not read as markup


def _shown(value: object) -> str:
    """Return a value as people read it: a record within a record as its names and values, several of them in lines."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    if isinstance(value, list) and value and all(isinstance(one, Mapping) for one in value):
        return "\n".join(map(_shown, value))
    return "" if value is None else str(value)


def _plain(value: object) -> object:
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Enum):
        return value.name
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")
