"""The lines that commits or the index add, from git's patches without context; as ranges of bytes of the new blobs.

Renamed files are compared with what they were, merges with all their parents: a line that one parent has is not added.

Invariants: patches are read as text, whatever attributes say, and no program of the repository is run for them; a blob
without a patch has no added lines, one that git cannot compare counts as added in full.
"""

import re
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np

from strandline.scan.sources.git_history import Ranges

PATCH = (
    *(
        "-p",
        "-U0",
        "--inter-hunk-context=0",
        "-M",
        "--full-index",
        "--text",
        "--no-color",
        "--no-ext-diff",
        "--no-textconv",
    ),
    *("--src-prefix=a/", "--dst-prefix=b/", "--no-indent-heuristic", "--diff-algorithm=myers"),
)
"""The options of a patch, each of which a user's configuration might change."""

Lines: TypeAlias = list[tuple[int, int]]
"""The first line of each run of added lines, from 1, and their number."""
_INDEX = re.compile(rb"index [0-9a-f,]+\.\.([0-9a-f]+)")
_HUNK = re.compile(rb"@@+ .*?\+(\d+)(?:,(\d+))? @@")
_WHOLE_HUNK = b"@@ -0,0 "


def added_lines(patch: Iterable[bytes]) -> dict[str, Lines | None]:
    """Return the added lines of each blob of a patch, which comes line by line; None means all of them."""
    found: dict[str, Lines | None] = {}
    blob = ""
    for line in patch:
        if line[:1] in b"+- \\":  # a line of a file, whatever it says
            continue
        if (named := _INDEX.match(line)) is not None:
            blob = named[1].decode()
            found.setdefault(blob, [])
        elif line.startswith((_WHOLE_HUNK, b"Binary files ")):
            found[blob] = None
        elif (hunk := _HUNK.match(line)) is not None and (lines := found.get(blob)) is not None:
            count = 1 if hunk[2] is None else int(hunk[2])
            lines += [(int(hunk[1]), count)] if count else []
    return found


def byte_ranges(data: bytes, lines: Sequence[tuple[int, int]]) -> Ranges:
    """Return lines of a file as ranges of its bytes."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n")) + 1
    begins = [0, *ends.tolist()]
    after = len(data)
    spans = [(first - 1, first - 1 + count) for first, count in lines if first <= len(begins)]
    return tuple((begins[first], begins[last] if last < len(begins) else after) for first, last in spans)


def meets(ranges: Ranges, start: int, end: int) -> bool:
    """Return whether a span of bytes has any in common with ranges."""
    return any(first < end and start < last for first, last in ranges)
