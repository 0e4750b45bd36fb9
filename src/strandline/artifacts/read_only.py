"""A fold that another process may keep up to date, read without its lock: exported as tables, and published.

Invariants: cursor and rows are of one moment, that of opening; the rows can be read once.
"""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from strandline.artifacts.errors import ArtifactUnfit, Refusal
from strandline.artifacts.logical import export_logical
from strandline.artifacts.published import Outcome, Publication, PublishedArtifacts
from strandline.artifacts.runs import PAGE_ROWS
from strandline.errors import Closed, InvalidInput
from strandline.fold import FoldReader, PutColumns, backend_of, open_read_only
from strandline.kv import WatchCursor


class ReaderSnapshot:
    """A `StoreSnapshot` of a fold that is read beside its writer; `on_rows` is called with the rows of each page."""

    version = 0

    def __init__(self, path: Path | str, on_rows: Callable[[int], object] | None = None) -> None:
        self._path = Path(path)
        self.backend = backend_of(self._path).value
        self._reader: FoldReader | None = open_read_only(self._path)
        self._on_rows = on_rows
        self._cursor, self._pages = self._reader.pages(b"", PAGE_ROWS)
        if not self._cursor:
            self.close()
            hint = "catch up with the bucket first; one without a write has nothing to export"
            raise ArtifactUnfit(str(self._path), Refusal.NO_CURSOR, "the fold is of no revision yet", hint=hint)

    def cursor(self) -> WatchCursor:
        """Return the cursor of this moment."""
        return self._cursor

    def rows(self, rows_max: int = PAGE_ROWS) -> Iterator[PutColumns]:
        """Yield all rows by key, once."""
        if self._reader is None:
            raise Closed("the snapshot")
        if rows_max < PAGE_ROWS:
            raise InvalidInput(f"pages of {PAGE_ROWS} rows were asked for already")
        for page in self._pages:
            if self._on_rows is not None:
                self._on_rows(len(page.keys))
            yield page

    def copy_to(self, folder: Path) -> None:
        """Refuse: only the writer of a fold can copy its files at one moment."""
        raise InvalidInput(f"{folder}: the files of a fold are copied by its writer", hint="export it as tables")

    def close(self) -> None:
        """Let go of this moment; twice is harmless."""
        if self._reader is not None:
            self._pages.close()
            self._reader.close()
            self._reader = None


def publish_fold(
    path: Path | str,
    artifacts: PublishedArtifacts,
    *,
    is_whole: bool = False,
    on_rows: Callable[[int], object] | None = None,
    publish: Callable[[Path], Publication] | None = None,
) -> Publication:
    """Export a fold beside itself, upon the newest artifact unless `is_whole`, and publish it; nothing is left there.

    `publish` takes the place of `artifacts.publish`, for rehearsals.
    """
    path, publish = Path(path), publish or artifacts.publish
    with tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent) as folder:
        previous = None if is_whole else artifacts.previous()
        for number in range(2):
            made = Path(folder) / str(number)
            with closing(ReaderSnapshot(path, on_rows)) as snapshot:
                export_logical(snapshot, made, previous=previous)
            publication = publish(made)
            if publication.outcome is not Outcome.REBASED:
                break
            previous = None  # another exporter has moved the pointer meanwhile
    return publication
