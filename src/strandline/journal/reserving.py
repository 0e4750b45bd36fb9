"""Space reserved at the end of a segment, so that an fsync seldom has to record a new size."""

import errno

from strandline.files import File
from strandline.journal.config import JournalConfig, KiB

RESERVE_BYTES_MIN = 64 * KiB
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EOPNOTSUPP)


def reserve(file: File, reserved: int, end: int, config: JournalConfig) -> int:
    """See that a file which reaches `reserved` reaches `end` and some way beyond; return how far it does."""
    step = min(max(reserved, RESERVE_BYTES_MIN), config.reserve_bytes_max)
    if end <= reserved or not step:
        return reserved
    wanted = max(end, min(reserved + step, config.segment_bytes_max))
    try:
        file.allocate(wanted)
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        return end  # there is no room to spare; the write itself will tell whether there is enough
    return wanted
