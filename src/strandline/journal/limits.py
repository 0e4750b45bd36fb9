"""Sizes of segments: when one is full, how much space it reserves ahead, and which ones retention removes."""

import errno

from strandline.files import File
from strandline.journal.config import GiB, JournalConfig, KiB, MiB
from strandline.journal.segment import SEGMENT_HEADER_BYTES
from strandline.journal.view import Segment, View

RESERVE_BYTES_MIN = 64 * KiB
FILL_BYTES_MAX = MiB
"""How much is filled with zeros at once: the append that does it waits for their fsync."""
FILL_FOR_BYTES_MAX = 64 * KiB
"""For commits larger than this the zeros would cost more than they spare."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP)


def is_full(active: Segment, size: int, config: JournalConfig, now_ns: int) -> bool:
    """Return whether the next commit, of so many bytes, belongs into a new segment; an empty one is never full."""
    if active.bytes <= SEGMENT_HEADER_BYTES:
        return False
    if active.bytes + size > config.segment_bytes_max:
        return True
    age_max_s = config.segment_age_max_s
    return age_max_s is not None and now_ns - active.created_ns > age_max_s * 1e9


def kept_from(view: View, config: JournalConfig, now_ns: int) -> int:
    """Return the offset from which on whole segments are kept, by bytes and by age; the last one always is."""
    keep_from = view.first_offset
    kept_bytes = sum(segment.bytes for segment in view.segments)
    oldest_ns = None if config.retain_age_s is None else now_ns - config.retain_age_s * 1e9
    for segment in view.segments[:-1]:
        kept_bytes -= segment.bytes
        too_large = config.retain_bytes is not None and kept_bytes >= config.retain_bytes
        too_old = oldest_ns is not None and segment.last_append_ns < oldest_ns
        if not too_large and not too_old:
            break
        keep_from = segment.end_offset
    return keep_from


def reserve(file: File, position: int, reserved: int, end: int, config: JournalConfig, *, synced: bool) -> int:
    """Make room in a file beyond `end`, so that an fsync seldom has to record a new size; return where it ends.

    For what is small and `synced` the room is filled with zeros, durably: a file system that only allocated a block has
    to record, with the fsync, that it was written, which takes as long again. The first room of a segment is not, as
    many a journal never needs more.
    """
    is_in_use = reserved >= min(RESERVE_BYTES_MIN, config.reserve_bytes_max)
    fills = synced and is_in_use and end - position <= FILL_FOR_BYTES_MAX
    step = min(max(reserved, RESERVE_BYTES_MIN), config.reserve_bytes_max, FILL_BYTES_MAX if fills else GiB)
    if end <= reserved or not step:
        return reserved
    wanted = max(end, min(reserved + step, config.segment_bytes_max))
    begin = max(position, reserved)
    try:
        if fills:
            file.pwritev([bytes(wanted - begin)], begin)
        else:
            file.allocate(wanted)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        file.truncate(begin)  # some of the room may be there, and be all that the disk had left
        return end  # no space to spare; the write itself shows whether there is enough
    if fills:
        file.sync()
    return wanted
