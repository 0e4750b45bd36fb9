"""A git history, or its staged files: every blob once, by its object id, with its commits and paths.

The listing uses git's plumbing: `rev-list` for commits, oldest first, and `diff-tree` for their blobs, merges compared
with all their parents, so that a blob of a merge alone is listed; then tags of blobs and trees, and all sizes. Blobs
are in the order of their first commits.

Invariants: a blob of a listed commit is listed, unless all its paths are excluded; the same blob under other
paths or commits is one item; a blob that a partial clone lacks is a row with a problem, and nothing is fetched.
"""
# ruff: noqa: PTH100, PTH118 (names are bytes, which pathlib does not take)

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

from strandline.detect.locations import shown
from strandline.errors import InvalidInput
from strandline.pipeline.identity import ConnectorInstanceId, connector_instance_id
from strandline.protocol.canonical import Plain
from strandline.scan.path_globs import PathGlobs
from strandline.scan.sources.errors import UNKNOWN_VERSION, Problem
from strandline.scan.sources.git_commands import PIECE_BYTES, Git, repository_at
from strandline.scan.sources.git_history import Blobs, Change, Place, Seen, changes, format_seen, parse_seen, tokens
from strandline.scan.sources.git_revisions import absent, blob_sizes, since_arguments, tagged
from strandline.scan.sources.source import SIZE_MAX, Content, ItemReader, Part, Row, Tell, batches, path_text
from strandline.scan.sources.walk import EXCLUDED

ALL = "--all"
_TRIES = 2
_RAW = ("-z", "--raw", "--no-renames", "--no-ext-diff")
_EMPTY_TREE = ("hash-object", "-t", "tree", "--stdin")


@dataclass(frozen=True)
class GitSource:
    """The blobs of a repository's history; make it with `GitSource.at`."""

    git: Git
    name: str
    instance: ConnectorInstanceId
    revisions: tuple[str, ...]
    is_staged: bool
    excludes: PathGlobs
    size_max: int
    by_path: bool = False

    tag = "git"

    @classmethod
    def at(
        cls,
        repo: str | bytes | os.PathLike[str],
        *,
        since: str | None = None,
        staged: bool = False,
        name: str = "",
        excludes: PathGlobs | None = None,
        size_max: int = SIZE_MAX,
        by_path: bool = False,
    ) -> Self:
        """Return the whole history, or the part of HEAD `since` a revision or a date, or the `staged` files.

        With `by_path`, for rules that look at paths, a blob is scanned under each path that it ever had, and again when
        it gets a new one; otherwise once, under the first.
        """
        if since is not None and staged:
            raise InvalidInput("--since does not apply to staged files", hint="give --since or --staged, not both")
        git = repository_at(repo, _hook_index() if staged else None)
        common = os.path.realpath(os.path.join(git.repo, git.run("rev-parse", "--git-common-dir").removesuffix(b"\n")))
        instance = connector_instance_id(b"git\0" + (name.encode() or common))
        revisions = (ALL,) if since is None else since_arguments(git, since)
        shown_name = name or path_text(git.repo)
        return cls(git, shown_name, instance, revisions, staged, excludes or PathGlobs(), size_max, by_path)

    @property
    def is_part(self) -> bool:
        """Whether the source is less than the whole history."""
        return self.is_staged or self.revisions != (ALL,)

    def plain(self) -> Plain:
        """Return the settings that decide the listing."""
        return {
            "kind": self.tag,
            "instance": self.instance.hex(),
            "repository": shown(path_text(self.git.repo)),
            "revisions": None if self.is_staged else list(self.revisions),
            "excludes": [glob.text for glob in self.excludes.globs],
            "size_max": self.size_max,
            "by_path": self.by_path,
        }

    def list_items(self, tell: Tell) -> Iterator[pa.RecordBatch]:
        """Yield every blob, in the order of first commits."""
        counts: Counter[str] = Counter()
        return batches(self._rows(counts), tell, counts)

    def open(self) -> AbstractContextManager[ItemReader]:
        """Return a reader over one `git cat-file`."""
        return closing(GitReader(self.git, self.size_max, by_path=self.by_path))

    def display(self, locator: bytes, extra: bytes | None) -> str:
        """Return the first path of a blob."""
        return path_text(locator if extra is None else parse_seen(extra).places[0].path)

    def _rows(self, counts: Counter[str]) -> Iterator[Row]:
        blobs = Blobs()
        for change in self._changes():
            if self.excludes.globs and self.excludes.leaving_out(path_text(change.path)):
                counts[EXCLUDED] += 1
            else:
                blobs.add(change)
        missing = absent(self.git)
        grouped = blobs.grouped()
        ids = (blob for batch in grouped.column("blob").chunks for blob in batch.to_pylist())
        sizes = blob_sizes(self.git, [blob for blob in ids if blob not in missing])
        for blob, seen in blobs.seen(grouped, each_path=self.by_path):
            yield self._row(blob, seen, Problem.NOT_FETCHED if blob in missing else next(sizes))

    def _row(self, blob: bytes, seen: Seen, size: int | Problem) -> Row:
        locator, extra = blob.hex().encode(), format_seen(seen)
        if isinstance(size, Problem):
            return locator, UNKNOWN_VERSION, None, None, extra, size.value
        if size > self.size_max:
            return locator, b"stat:" + locator, size, None, extra, Problem.TOO_LARGE.value
        return locator, blob_version(locator, seen if self.by_path else None), size, None, extra, None

    def _changes(self) -> Iterator[Change]:
        if self.is_staged:
            return self._staged()
        history = self._history()
        return chain(history, tagged(self.git)) if self.revisions == (ALL,) else history

    def _history(self) -> Iterator[Change]:
        find = ("rev-list", "--reverse", "--topo-order", *self.revisions, "--")
        with (
            self.git.stream(*find) as commits,
            self.git.stream("diff-tree", "--stdin", "-r", "--root", "-c", *_RAW, stdin=commits) as out,
        ):
            yield from changes(tokens(iter(partial(out.read, PIECE_BYTES), b"")))

    def _staged(self) -> Iterator[Change]:
        against = b"HEAD" if self.git.ask("rev-parse", "--verify", "--quiet", "HEAD^{commit}") else None
        against = against or self.git.run(*_EMPTY_TREE).strip()
        with self.git.stream("diff-index", "--cached", *_RAW, against, "--") as out:
            yield from changes(tokens(iter(partial(out.read, PIECE_BYTES), b"")))


class GitReader:
    """Reads blobs through one `git cat-file --batch`, which is restarted after it died."""

    def __init__(self, git: Git, size_max: int, *, by_path: bool = False) -> None:
        self._git = git
        self._size_max = size_max
        self._by_path = by_path
        self._process: subprocess.Popen[bytes] | None = None

    def read(self, locator: bytes, extra: bytes | None) -> Content:
        """Return a blob; an error of the source if the whole repository is unreadable."""
        seen = parse_seen(extra) if extra else Seen(1, (Place("", locator),))
        data = self._blob(locator)
        places = seen.places if self._by_path else seen.places[:1]
        parts = [Part(data, path_text(place.path), at, place.commit) for at, place in enumerate(places)]
        return Content(blob_version(locator, seen if self._by_path else None), parts, len(data))

    def close(self) -> None:
        """End the command."""
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            with suppress(BrokenPipeError), process:
                pass

    def _blob(self, locator: bytes) -> bytes:
        for _ in range(_TRIES):
            out = self._ask(locator)
            match out.readline().split():
                case [_, b"blob", size] if int(size) <= self._size_max:
                    data = out.read(int(size) + 1)
                    if len(data) == int(size) + 1:
                        return data[:-1]
                case [_, b"blob", _]:  # git is sending its bytes; a new process is cheaper than reading them
                    self.close()
                    raise Problem.TOO_LARGE.error(b"stat:" + locator)
                case [_, b"missing"]:
                    raise Problem.VANISHED.error()
                case _:
                    pass
            self.close()  # git died: it was killed, or this blob kills it, and then it dies again
        self._git.run("rev-parse", "--git-dir")  # an unreadable repository is no failure of a blob
        raise Problem.DAMAGED.error()

    def _ask(self, locator: bytes) -> IO[bytes]:
        """Write a blob's id to the command, and return its answer."""
        if self._process is None:
            self._process = self._git.start(("cat-file", "--batch"))
        stdin = cast("IO[bytes]", self._process.stdin)
        with suppress(BrokenPipeError):  # of a dead command, which does not answer
            stdin.write(locator + b"\n")
            stdin.flush()
        return cast("IO[bytes]", self._process.stdout)


def blob_version(locator: bytes, seen: Seen | None) -> bytes:
    """Return the version of a blob: its object id, with its paths if rules match paths."""
    return b"git:" + locator + (b"" if seen is None else b":" + seen.paths_digest)


def _hook_index() -> bytes | None:
    """Return the index of the commit in progress."""
    found = os.environb.get(b"GIT_INDEX_FILE")
    return os.path.abspath(found) if found else None
