"""Sources of a scan: files, git histories, tables, journals, objects, …: items in a fixed order and their bytes.

A work tree and its history are one source seen twice (`git_repository`): the same items, with the same versions.

**Promise.** A listing has every version of every item once, in an order that does not depend on the machine; unreadable
items are in it, with the reason; excluded items are counted. A reader returns one version of an item, and the version
that it names is the version of exactly these bytes.

**How.** A `Source` is a value: it pickles, so that the driver lists and executors read. `list_items` yields Arrow
batches (`LISTING`); `open` gives an `ItemReader`, whose `Content` has one or many `Part`s: the bytes that the engine
scans as one, with the data that `location` needs to locate a finding.

    source       item                          version                        parts
    files        a file                        BLAKE3 of its bytes            the file
    files in git a path of the repository      the id of its blob             the file
    git          a path of the repository      the id of its blob             the blob
    tables       a row group of a file         BLAKE3 of its bytes            cells
    journals     a block of 1,024 offsets      offsets and identity           values, keys and headers of records
    streams      a block of 1,024 sequences    sequences and creation time    payloads and headers of messages
    objects      an object of a bucket         its ETag and size              the object
    images       a path in an image            the layer's digest             the file
    sqlite       a block of rows of a table    BLAKE3 of its cells            cells with text or bytes
    exports      a day, an issue, a page, a file BLAKE3 of its texts            messages, fields, versions
    stdin        the standard input            BLAKE3 of its bytes            pieces, one if it is small

`stat_cache` remembers the versions of files by their stat data, by git's rule for racy timestamps.

**Trade-offs.** Links are not followed: their targets inside the root are scanned in their own place. A file is read
whole, up to a limit. Sources are independent of Spark, the ledger and the engine.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from strandline.lazy_imports import lazy_names as _lazy_names

if _TYPE_CHECKING:
    from strandline.scan.sources.errors import (
        InputMissing,
        InputRefused,
        InputUnusable,
        ItemFailed,
        ItemProblem,
        ItemSkipped,
        ItemUnsettled,
        Problem,
    )
    from strandline.scan.sources.exports import ExportSource
    from strandline.scan.sources.files import FileSource
    from strandline.scan.sources.git import GitSource
    from strandline.scan.sources.git_history import Seen, format_seen, parse_seen
    from strandline.scan.sources.images import ImageSource
    from strandline.scan.sources.journals import JournalSource
    from strandline.scan.sources.objects import ObjectSource
    from strandline.scan.sources.source import (
        LISTING,
        SIZE_MAX,
        Content,
        ItemReader,
        Part,
        Source,
        Tell,
        left_out,
        location,
    )
    from strandline.scan.sources.sqlite import SqliteSource
    from strandline.scan.sources.stat_cache import VOUCHED, StatCache
    from strandline.scan.sources.stdin import StdinSource
    from strandline.scan.sources.streams import StreamSource
    from strandline.scan.sources.tables import TableSource

__all__ = [
    "LISTING",
    "SIZE_MAX",
    "VOUCHED",
    "Content",
    "ExportSource",
    "FileSource",
    "GitSource",
    "ImageSource",
    "InputMissing",
    "InputRefused",
    "InputUnusable",
    "ItemFailed",
    "ItemProblem",
    "ItemReader",
    "ItemSkipped",
    "ItemUnsettled",
    "JournalSource",
    "ObjectSource",
    "Part",
    "Problem",
    "Seen",
    "Source",
    "SqliteSource",
    "StatCache",
    "StdinSource",
    "StreamSource",
    "TableSource",
    "Tell",
    "format_seen",
    "left_out",
    "location",
    "parse_seen",
]

# Import a public name at its first use: a scan loads only the kinds of sources that it has.
__getattr__ = _lazy_names(
    __name__,
    {
        "errors": (
            "InputMissing",
            "InputRefused",
            "InputUnusable",
            "ItemFailed",
            "ItemProblem",
            "ItemSkipped",
            "ItemUnsettled",
            "Problem",
        ),
        "exports": ("ExportSource",),
        "files": ("FileSource",),
        "git": ("GitSource",),
        "git_history": ("Seen", "format_seen", "parse_seen"),
        "images": ("ImageSource",),
        "journals": ("JournalSource",),
        "objects": ("ObjectSource",),
        "source": ("LISTING", "SIZE_MAX", "Content", "ItemReader", "Part", "Source", "Tell", "left_out", "location"),
        "sqlite": ("SqliteSource",),
        "stat_cache": ("VOUCHED", "StatCache"),
        "stdin": ("StdinSource",),
        "streams": ("StreamSource",),
        "tables": ("TableSource",),
    },
)
