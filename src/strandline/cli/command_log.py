"""The log of a command that runs for long: lines for people, or JSON objects for programs, on standard error.

With `--log-format json` each line is one object: `time`, `level`, `component`, `message`, and the fields of the event.

Invariants: in JSON every line of standard error is such an object, those that other modules print included; an error
that ends the command is the last one. Text is as it is printed without a log. No password of an address is written.
"""

import io
import logging
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Annotated, TextIO

import typer

from strandline.cli.exit_codes import exit_code
from strandline.cli.log_line import format_log_line
from strandline.cli.output import print_line
from strandline.cli.vocabulary import in_cli_words
from strandline.errors import StrandlineError

_PREFIXES = {"error: ": "error", "warning: ": "warning", "alarm: ": "error"}


class LogFormat(Enum):
    """The form of log lines."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[
    LogFormat, typer.Option("--log-format", help="Log lines on standard error: text, or JSON, one object a line.")
]


class CommandLog:
    """Where a command tells what happens."""

    def __init__(self, component: str, form: LogFormat = LogFormat.TEXT, out: TextIO | None = None) -> None:
        self.component = component
        self.form = form
        self._out = out
        self._lock = threading.Lock()

    @property
    def is_json(self) -> bool:
        """Whether lines are JSON."""
        return self.form is LogFormat.JSON

    def say(self, message: str, **fields: object) -> None:
        """Tell what happened."""
        self.tell("info", message, **fields)

    def warn(self, message: str, **fields: object) -> None:
        """Tell what needs a look."""
        self.tell("warning", message, **fields)

    def fail(self, message: str, **fields: object) -> None:
        """Tell what failed."""
        self.tell("error", message, **fields)

    def tell(self, level: str, message: str, **fields: object) -> None:
        """Write one line; in text the message alone."""
        if not self.is_json:
            print_line(message, to_errors=True)
            return
        line = format_log_line(level, self.component, message.removeprefix(f"{level}: "), **fields)
        with self._lock:
            print(line, file=self._out or sys.stderr, flush=True)


class _PrintedLines(io.TextIOBase):
    """Standard error while the log is JSON: what others print becomes lines of the log."""

    def __init__(self, log: CommandLog) -> None:
        self._log = log
        self._rest = ""
        self._lock = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._lock:
            *lines, self._rest = (self._rest + text).split("\n")
        for line in lines:
            self._tell(line)
        return len(text)

    def close_line(self) -> None:
        """Tell a line that was begun."""
        with self._lock:
            line, self._rest = self._rest, ""
        self._tell(line)

    def _tell(self, line: str) -> None:
        if line.strip():
            level = next((level for prefix, level in _PREFIXES.items() if line.startswith(prefix)), "info")
            self._log.tell(level, line.rstrip())


class _LoggedRecords(logging.Handler):
    """What modules log, as lines of a log."""

    def __init__(self, log: CommandLog) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        trace = {"trace": logging.Formatter().formatException(record.exc_info)} if record.exc_info else {}
        self._log.tell(level, record.getMessage(), logger=record.name, **trace)


@contextmanager
def command_log(component: str, form: LogFormat) -> Iterator[CommandLog]:
    """Give a command its log for the block; an error that ends the block is its last line."""
    if form is LogFormat.TEXT:
        yield CommandLog(component)
        return
    before = sys.stderr
    log = CommandLog(component, form, before)
    printed, records = _PrintedLines(log), _LoggedRecords(log)
    sys.stderr = printed
    logging.getLogger().addHandler(records)
    try:
        yield log
    except StrandlineError as error:
        printed.close_line()
        log.fail(str(error), event="failed", hint=in_cli_words(error.hint) if error.hint else None)
        raise typer.Exit(exit_code(error)) from error
    finally:
        printed.close_line()
        logging.getLogger().removeHandler(records)
        sys.stderr = before
