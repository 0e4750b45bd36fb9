"""Errors of the format: what a query is told when a journal is no longer the one, or no longer holds what it was.

    StrandlineError
    ├── InvalidInput       an option or a column that cannot work
    ├── RecordsMissing     records that the query should see are gone: trimmed, damaged, or another journal's
    └── UnknownOutcome
        └── SinkUnsure     whether a commit happened can no longer be told

Invariants: the hint is also a note of the error, since Spark shows a worker's traceback and nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from strandline.errors import InvalidInput, StrandlineError, UnknownOutcome

_GO_ON = "restore it, start a new query where it begins now, or set failOnDataLoss to false to go on"


def refused(message: str, hint: str) -> InvalidInput:
    """Return the error for an option or a column that cannot work."""
    error = InvalidInput(message, hint=hint)
    error.add_note(hint)
    return error


@contextmanager
def hinting() -> Iterator[None]:
    """Let errors of our tree that pass through here carry their hint as a note too."""
    try:
        yield
    except StrandlineError as error:
        if error.hint and error.hint not in getattr(error, "__notes__", ()):
            error.add_note(error.hint)
        raise


class RecordsMissing(StrandlineError):
    """Records between the query's offset and what the journal holds now are gone, or were never this journal's."""

    def __init__(self, path: str, problem: str, hint: str = _GO_ON) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.add_note(hint)
        self.path = path
        self.problem = problem


class SinkUnsure(UnknownOutcome):
    """A commit was cut short and what would tell how far it came is gone."""

    def __init__(self, path: str, problem: str, hint: str) -> None:
        super().__init__(f"{path}: {problem}", hint=hint)
        self.add_note(hint)
        self.path = path
        self.problem = problem
