"""Columns of a consumer's deliveries: ack subjects, added headers, sizes."""

import numpy as np

from strandline.broker.streams.headers import VERSION_LINE
from strandline.broker.streams.messages import Messages


def ack_subjects(prefix: bytes, messages: Messages, consumer_seq: int, left: int) -> list[bytes]:
    """Return the ack subjects of first deliveries: consumer sequences ascend, pending counts descend."""
    count = len(messages)
    numbers = np.empty((count, 4), np.int64)
    numbers[:, 0] = messages.sequences
    numbers[:, 1] = np.arange(consumer_seq, consumer_seq + count)
    numbers[:, 2] = messages.times
    numbers[:, 3] = np.arange(left - 1, left - 1 - count, -1)
    # One format operation for all is faster than one for each.
    line = prefix.replace(b"%", b"%%") + b"1.%d.%d.%d.%d\n"
    lines = line * count % tuple(numbers.ravel().tolist())
    return lines[:-1].split(b"\n")


def repeated_ack_subjects(
    prefix: bytes, messages: Messages, deliveries: list[int], consumer_seq: int, left: int
) -> list[bytes]:
    """Return the ack subjects of redeliveries, in the order of the messages."""
    sequences, times = messages.sequences.tolist(), messages.times.tolist()
    numbers = zip(deliveries, sequences, range(consumer_seq, consumer_seq + len(messages)), times, strict=True)
    return [prefix + b"%d.%d.%d.%d.%d" % (*row, left) for row in numbers]


def headers_with_sizes(headers: list[bytes], payloads: list[bytes]) -> list[bytes]:
    """Return header blocks with the size of each payload."""
    return [
        (block[:-2] if block else VERSION_LINE) + b"Nats-Msg-Size: %d\r\n\r\n" % len(payload)
        for block, payload in zip(headers, payloads, strict=True)
    ]


def headers_with_pin(headers: list[bytes], pin: str) -> list[bytes]:
    """Return header blocks with the pin id."""
    line = b"Nats-Pin-Id: %s\r\n\r\n" % pin.encode()
    return [(block[:-2] if block else VERSION_LINE) + line for block in headers]


def sizes_of(
    subjects: list[bytes], replies: list[bytes], headers: list[bytes] | None, payloads: list[bytes]
) -> list[int]:
    """Return the size of each message as a client counts it: without the delivery subject."""
    sizes = [
        len(subject) + len(reply) + len(payload)
        for subject, reply, payload in zip(subjects, replies, payloads, strict=True)
    ]
    if headers is None:
        return sizes
    return [size + len(block) for size, block in zip(sizes, headers, strict=True)]
