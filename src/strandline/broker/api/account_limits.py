"""Account limits: a stream beyond them is refused, in nats-server's order of checks.

Invariants: pure; the `max_bytes` that a stream reserves counts, not its current size.
"""

from collections.abc import Mapping
from typing import NamedTuple

from strandline.broker.api import codes
from strandline.broker.api.config import Storage, StreamConfig
from strandline.broker.api.responses import AccountLimits


class AccountUsage(NamedTuple):
    """Used and reserved bytes of an account's streams, by storage."""

    streams: int
    bytes: Mapping[Storage, int]
    reserved: Mapping[Storage, int]


def check_account(
    config: StreamConfig, limits: AccountLimits, used: AccountUsage, old: StreamConfig | None = None
) -> None:
    """Refuse a new or updated stream that exceeds the limits of its account."""
    if limits.max_bytes_required and config.max_bytes <= 0:
        raise codes.STREAM_MAX_BYTES_REQUIRED.error()
    is_memory = config.storage is Storage.MEMORY
    stream_max = limits.memory_max_stream_bytes if is_memory else limits.storage_max_stream_bytes
    if 0 < stream_max < config.max_bytes:
        raise codes.STREAM_MAX_STREAM_BYTES_EXCEEDED.error()
    if old is None and 0 <= limits.max_streams <= used.streams:
        raise codes.MAXIMUM_STREAMS_LIMIT.error()
    if 0 < limits.max_consumers < config.max_consumers:
        raise codes.MAXIMUM_CONSUMERS_LIMIT.error()
    limit = limits.max_memory if is_memory else limits.max_storage
    before = max(0, old.max_bytes) if old is not None else 0
    more = (config.max_bytes if config.max_bytes > 0 else 1) - before
    if 0 <= limit < used.reserved[config.storage] + more and more > 0:
        raise (codes.MEMORY_RESOURCES_EXCEEDED if is_memory else codes.STORAGE_RESOURCES_EXCEEDED).error()
