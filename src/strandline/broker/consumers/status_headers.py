"""Status messages of consumers: header blocks with nats-server's codes and texts."""

PUSH_BASED = (409, b"Consumer is push based")
MAX_WAITING = (409, b"Exceeded MaxWaiting")
NO_MESSAGES = (404, b"No Messages")
REQUESTS_PENDING = (408, b"Requests Pending")
TIMEOUT = (408, b"Request Timeout")
TOO_LARGE = (409, b"Message Size Exceeds MaxBytes")
COMPLETED = (409, b"Batch Completed")
API_LEVEL = (412, b"Required Api Level")
PIN_MISMATCH = (423, b"Nats-Pin-Id mismatch")
WRONG_PIN = (423, b"Nats-Wrong-Pin-Id")
SHUTDOWN = (409, b"Server Shutdown")
FLOW_REQUEST = b"NATS/1.0 100 FlowControl Request\r\n\r\n"

Status = tuple[int, bytes]


def status(what: Status) -> bytes:
    """Return the header block of a status."""
    return b"NATS/1.0 %d %s\r\n\r\n" % what


def status_pending(what: Status, messages: int, size: int) -> bytes:
    """Return a status with the undelivered rest of a pull."""
    return b"NATS/1.0 %d %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (*what, messages, size)


def bad_request(problem: str) -> bytes:
    """Return the status of a refused pull."""
    return status((400, b"Bad Request - " + problem.encode()))


def heartbeat(consumer_seq: int, stream_seq: int, stalled: bytes = b"") -> bytes:
    """Return an idle heartbeat with the last sequences and the pending flow control request, if any."""
    text = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n"
    lines = text % (consumer_seq, stream_seq)
    return lines + (b"Nats-Consumer-Stalled: %s\r\n\r\n" % stalled if stalled else b"\r\n")
