"""Options of a journal, parsed once: unknown ones are refused, and so are those of another door.

Invariants: pure; a path is absolute afterwards, so that it means the same folder in every process.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from strandline.spark.logs.options import BATCH_READ_OPTIONS, STREAM_READ_OPTIONS, Given, ReadOptions, parse_name

BATCH_OPTIONS = ("path", *BATCH_READ_OPTIONS)
STREAM_OPTIONS = ("path", *STREAM_READ_OPTIONS)
WRITE_OPTIONS = ("path", "commitId")
STREAM_WRITE_OPTIONS = ("path", "checkpointLocation")
"""Spark hands the query's own `checkpointLocation` to its sink."""


@dataclass(frozen=True, slots=True)
class JournalOptions(ReadOptions):
    """Which part of a journal is read."""

    path: str

    @property
    def label(self) -> str:
        """Return the journal's path."""
        return self.path


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The journal that rows go to, and the name that makes a bounded write happen once."""

    path: str
    commit_id: str | None = None


def parse_batch_options(options: Mapping[str, str]) -> JournalOptions:
    """Return the options of a bounded read."""
    given = Given(options, BATCH_OPTIONS, "a bounded read")
    return JournalOptions(given.path(), **given.batch_read())


def parse_stream_options(options: Mapping[str, str]) -> JournalOptions:
    """Return the options of a streaming read."""
    given = Given(options, STREAM_OPTIONS, "a stream")
    return JournalOptions(given.path(), **given.stream_read("give the number: JournalReader.open(path).next_offset"))


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """Return the options of a sink."""
    what = "a streaming write" if is_stream else "a bounded write"
    given = Given(options, STREAM_WRITE_OPTIONS if is_stream else WRITE_OPTIONS, what)
    return WriteOptions(given.path(), given.take("commitId", parse_name, default=None))
