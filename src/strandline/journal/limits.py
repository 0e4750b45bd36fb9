"""When a segment is full, and which ones retention asks for: decisions over values."""

from strandline.journal.config import JournalConfig
from strandline.journal.segment import SEGMENT_HEADER_BYTES
from strandline.journal.state import Segment, View


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
