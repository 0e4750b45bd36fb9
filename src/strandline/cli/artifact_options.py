"""Options and output that the commands about artifacts of folds share: addresses, manifests, progress of transfers."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Annotated, Self

import typer

from strandline.artifacts import Manifest, PublishedArtifacts
from strandline.cli.status_line import StatusLine
from strandline.errors import InvalidInput
from strandline.fold import Scope
from strandline.fold.cursor import UNKNOWN
from strandline.fold.scopes import StoredScope
from strandline.objects import MemoryObjects, RequestCounts, local_folder

WHERE = "s3://BUCKET/PREFIX, gs://…, az://…, or file:///FOLDER"
ArtifactsAddress = Annotated[
    str, typer.Argument(metavar="ADDRESS", help=f"Where the artifacts are: {WHERE}.", show_default=False)
]
ArtifactFolder = Annotated[
    Path, typer.Argument(metavar="FOLDER", help="The folder of the artifact.", show_default=False)
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
_TICK_S = 0.25


@contextmanager
def artifacts_at(
    address: str, *, is_read_only: bool = False, must_exist: bool = True, counts: RequestCounts | None = None
) -> Iterator[PublishedArtifacts]:
    """Open published artifacts for the block; reading never makes a local folder, and requires it with `must_exist`."""
    folder = local_folder(address) if is_read_only else None
    if folder is not None and not folder.exists():
        if must_exist:
            hint = "give the address that artifacts are published at"
            raise InvalidInput(f"{folder}: there is no such folder", hint=hint)
        yield PublishedArtifacts(MemoryObjects())
        return
    with PublishedArtifacts.open(address, is_read_only=is_read_only, counts=counts) as artifacts:
        yield artifacts


def manifest_record(manifest: Manifest) -> Mapping[str, object]:
    """Return an artifact as a record to print."""
    cursor = manifest.fold_cursor
    return {
        "revision": manifest.rank,
        "form": manifest.form.value,
        "backend": manifest.backend,
        "mode": cursor.mode.name.lower(),
        "scope": scope_text(cursor.scope),
        "bucket_identity": None if cursor.identity == UNKNOWN else cursor.identity.hex(),
        "entries": manifest.entries,
        "bytes": manifest.size,
        "files": len(manifest.files),
        "runs": len(manifest.runs),
        "created": unix_time(manifest.created_unix),
    }


def scope_text(scope: StoredScope) -> str | None:
    """Return the scope of a cursor as text, None if it is unknown."""
    if isinstance(scope, Scope):
        return str(scope)
    return None if scope == UNKNOWN else f"digest {scope.hex()}"


def unix_time(seconds: float) -> str:
    """Return a time for people and programs."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


class TransferLine(StatusLine):
    """The progress of an export and its transfer, drawn by a thread of its own; use it in a `with` statement."""

    def __init__(self, what: str, *, quiet: bool = False) -> None:
        super().__init__(quiet=quiet)
        self.counts = RequestCounts()
        self.rows = 0
        self._what = what
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="strandline-progress", daemon=True)

    def add_rows(self, rows: int) -> None:
        """Count rows of a fold that were read."""
        self.rows += rows

    def __enter__(self) -> Self:
        super().__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        super().__exit__(kind, error, trace)

    def line(self) -> str:
        """Return the progress as text."""
        parts = [self._what]
        if self.rows:
            parts.append(f"{self.rows:,} rows read")
        for count, word in ((self.counts.sent_bytes, "uploaded"), (self.counts.received_bytes, "downloaded")):
            if count:
                parts.append(f"{count / 1e6:,.1f} MB {word}")
        return ", ".join(parts)

    def _tick(self) -> None:
        while not self._is_over.wait(_TICK_S):
            self.show(self.line())
