"""The size of a message in a stream's bytes: as in nats-server, by kind of storage."""

from strandline.broker.api.config import Storage

FILE_OVERHEAD, MEMORY_OVERHEAD, HEADER_OVERHEAD = 30, 16, 4


def stored_size(storage: Storage, subject: bytes, headers: bytes, payload: bytes) -> int:
    """Return how many bytes a message counts for."""
    size = len(subject) + len(headers) + len(payload)
    if storage is not Storage.FILE:
        return size + MEMORY_OVERHEAD
    return size + FILE_OVERHEAD + (HEADER_OVERHEAD if headers else 0)
