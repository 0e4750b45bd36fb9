"""A git history, or its staged files: every path, with every blob that it ever had as a version.

The listing uses git's plumbing: `rev-list` for commits, oldest first, and `diff-tree` for their blobs, merges compared
with all their parents, so that a blob of a merge alone is listed; then tags of blobs and trees, and all sizes. Blobs
are in the order of their first commits, and the paths of one blob are together, so that it is read once.

`since` and `staged` list what changed, with the ranges of bytes that were added: only these are judged.

Invariants: a blob of a listed commit is listed under each of its paths, unless that is excluded; a blob that a partial
clone lacks is a row with a problem, and nothing is fetched.
"""
# ruff: noqa: PTH100 (names are bytes, which pathlib does not take)

import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import IO, Self, cast

import pyarrow as pa
import pyarrow.compute as pc

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import ItemProblem, Problem
from strandline.scan.sources.git_added import PATCH, Lines, added_lines, byte_ranges
from strandline.scan.sources.git_commands import PIECE_BYTES, Git, repository_at
from strandline.scan.sources.git_history import Change, History, Seen, changes, format_seen, parse_seen, tokens
from strandline.scan.sources.git_repository import (
    HISTORY,
    TAG,
    blob_version,
    format_locator,
    parse_locator,
    repository_of,
)
from strandline.scan.sources.git_revisions import absent, blob_sizes, head_files, since_arguments, tagged
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches, path_text
from strandline.scan.sources.walk import EXCLUDED

ALL = "--all"
_TRIES = 2
_RAW = ("-z", "--raw", "--no-renames", "--no-ext-diff")
_EMPTY_TREE = ("hash-object", "-t", "tree", "--stdin")


@dataclass(frozen=True)
class GitSource:
    """The versions of the paths of a repository's history; make it with `GitSource.at`."""

    git: Git
    name: str
    identity: bytes
    instance: ConnectorInstanceId
    revisions: tuple[str, ...]
    is_staged: bool
    excludes: PathGlobs
    size_max: int

    tag = TAG
    cut = "one part: which commits have a path is known only behind the walk over the whole history"
    view = HISTORY

    @classmethod
    def at(
        cls,
        repo: str | bytes | os.PathLike[str],
        *,
        since: str | None = None,
        staged: bool = False,
        name: str = "",
        shown_as: str = "",
        excludes: PathGlobs | None = None,
        size_max: int = SIZE_MAX,
    ) -> Self:
        """Return the whole history, or the part of HEAD `since` a revision or a date, or the `staged` files.

        A `name` identifies the repository instead of its root commits.
        """
        if since is not None and staged:
            raise InvalidInput("--since does not apply to staged files", hint="give --since or --staged, not both")
        git = repository_at(repo, _hook_index() if staged else None)
        found = repository_of(git, name)
        revisions = (ALL,) if since is None else since_arguments(git, since)
        shown_name = name or shown_as or path_text(found.top or git.repo)
        return cls(
            git, shown_name, found.identity, found.instance, revisions, staged, excludes or PathGlobs(), size_max
        )

    @property
    def is_part(self) -> bool:
        """Whether the source is less than the whole history."""
        return self.is_staged or self.revisions != (ALL,)

    @property
    def report_root(self) -> str:
        """Return the folder that paths are below."""
        return self.name if self.name.startswith("/") else ""

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "repository": shown(path_text(self.git.repo)),
            "revisions": None if self.is_staged else list(self.revisions),
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
            "items": "paths",
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield every version of every path, blobs in the order of first commits."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader over one `git cat-file`."""
        return closing(GitReader(self.git, self.size_max))

    def display(self, locator: bytes, extra: bytes | None) -> str:  # noqa: ARG002 - the locator has the path
        """Return the path."""
        return path_text(parse_locator(locator))

    def _rows(self, counts: Counter[str]) -> Iterator[Row]:
        history = History()
        for change in self._changes():
            if self.excludes.globs and self.excludes.leaving_out(path_text(change.path)):
                counts[EXCLUDED] += 1
            else:
                history.add(change)
        missing = absent(self.git)
        grouped = history.grouped()
        blobs = _distinct(grouped)
        sizes = blob_sizes(self.git, [blob for blob in blobs if blob not in missing])
        added = self._added() if self.is_part else None
        blob, size = "", cast("int | Problem", Problem.NOT_FETCHED)
        with closing(GitReader(self.git, self.size_max)) as reader:
            for path, seen in history.seen(grouped, head_files(self.git)):
                if seen.blob != blob:
                    blob = seen.blob
                    size = Problem.NOT_FETCHED if bytes.fromhex(blob) in missing else next(sizes)
                judged = seen if added is None else _judged(seen, size, added, reader)
                if judged is not None:
                    yield self._row(path, judged, size)

    def _row(self, path: bytes, seen: Seen, size: int | Problem) -> Row:
        locator, extra = format_locator(self.identity, path), format_seen(seen)
        if isinstance(size, Problem):
            return locator, _unread(seen.blob), None, None, extra, size.value
        if size > self.size_max:
            return locator, _unread(seen.blob), size, None, extra, Problem.TOO_LARGE.value
        return locator, blob_version(seen.blob), size, None, extra, None

    def _changes(self) -> Iterator[Change]:
        if self.is_staged:
            return self._staged()
        history = self._history()
        return chain(history, tagged(self.git)) if self.revisions == (ALL,) else history

    @property
    def _commits(self) -> tuple[str, ...]:
        return "rev-list", "--reverse", "--topo-order", *self.revisions, "--"

    def _history(self) -> Iterator[Change]:
        with (
            self.git.stream(*self._commits) as commits,
            self.git.stream("diff-tree", "--stdin", "-r", "--root", "-c", *_RAW, stdin=commits) as out,
        ):
            yield from changes(tokens(iter(partial(out.read, PIECE_BYTES), b"")))

    def _staged(self) -> Iterator[Change]:
        with self.git.stream("diff-index", "--cached", *_RAW, self._compared, "--") as out:
            yield from changes(tokens(iter(partial(out.read, PIECE_BYTES), b"")))

    @property
    def _compared(self) -> bytes:
        """Return the tree that staged files are compared with."""
        is_born = self.git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
        return b"HEAD" if is_born else self.git.run(*_EMPTY_TREE).strip()

    def _added(self) -> dict[str, Lines | None]:
        """Return the added lines of each changed blob."""
        if self.is_staged:
            with self.git.stream("diff-index", "--cached", *PATCH, self._compared, "--") as out:
                return added_lines(out)
        with (
            self.git.stream(*self._commits) as commits,
            self.git.stream("diff-tree", "--stdin", "-r", "--root", "--cc", *PATCH, stdin=commits) as out,
        ):
            return added_lines(out)


def _distinct(grouped: pa.Table) -> list[bytes]:
    """Return the blobs of versions that are grouped by them."""
    blobs: list[bytes] = pc.unique(grouped["blob"]).to_pylist()
    return blobs


def _judged(seen: Seen, size: int | Problem, added: dict[str, Lines | None], reader: "GitReader") -> Seen | None:
    """Return a version with its added bytes; None if nothing was added."""
    lines = added.get(seen.blob, [])
    if lines is None or isinstance(size, Problem) or size > reader.size_max:
        return seen
    if not lines:
        return None
    try:
        return seen._replace(added=byte_ranges(reader.blob(seen.blob), lines))
    except ItemProblem:  # the scan meets it again, and counts it
        return seen


class GitReader:
    """Reads blobs through one `git cat-file --batch`, which is restarted after it died."""

    def __init__(self, git: Git, size_max: int) -> None:
        self.size_max = size_max
        self._git = git
        self._last = ("", b"")
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return a version of a path; an error of the source if the whole repository is unreadable."""
        if extra is None:
            raise Problem.VANISHED.error()
        seen = parse_seen(extra)
        data = self.blob(seen.blob)
        part = Part(data, path_text(parse_locator(locator)), commit=seen.first)
        return Content(blob_version(seen.blob), [part], len(data))

    def blob(self, blob: str) -> bytes:
        """Return the bytes of a blob; those of the last one are at hand."""
        if self._last[0] != blob:
            self._last = ("", b"")
            self._last = blob, self._read(blob)
        return self._last[1]

    def close(self) -> None:
        """End the command."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            with suppress(BrokenPipeError), process:
                pass

    def _read(self, blob: str) -> bytes:
        for _ in range(_TRIES):
            out = self._ask(blob)
            match out.readline().split():
                case [_, b"blob", size] if int(size) <= self.size_max:
                    data = out.read(int(size) + 1)
                    if len(data) == int(size) + 1:
                        return data[:-1]
                case [_, b"blob", _]:  # git is sending its bytes; a new process is cheaper than reading them
                    self.close()
                    raise Problem.TOO_LARGE.error(_unread(blob))
                case [_, b"missing"]:
                    raise Problem.VANISHED.error(_unread(blob))
                case _:
                    pass
            self.close()  # git died: it was killed, or this blob kills it, and then it dies again
        self._git.run("rev-parse", "--git-dir")  # an unreadable repository is no failure of a blob
        raise Problem.DAMAGED.error(_unread(blob))

    def _ask(self, blob: str) -> IO[bytes]:
        """Write a blob's id to the command, and return its answer."""
        if self._process is None:
            self._process = self._git.start(("cat-file", "--batch"))
        stdin = cast("IO[bytes]", self._process.stdin)
        with suppress(BrokenPipeError):  # of a dead command, which does not answer
            stdin.write(blob.encode() + b"\n")
            stdin.flush()
        return cast("IO[bytes]", self._process.stdout)


def _unread(blob: str) -> bytes:
    """Return the weak version of a path whose blob was not read."""
    return b"stat:" + blob.encode()


def _hook_index() -> bytes | None:
    """Return the index of the commit in progress."""
    found = os.environb.get(b"GIT_INDEX_FILE")
    return os.path.abspath(found) if found else None
