"""What a consumer says beside messages: header blocks with a status, in nats-server's words."""

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
    """Return a status without anything else."""
    return b"NATS/1.0 %d %s\r\n\r\n" % what


def status_pending(what: Status, messages: int, size: int) -> bytes:
    """Return a status with how much of a pull was not delivered."""
    return b"NATS/1.0 %d %s\r\nNats-Pending-Messages: %d\r\nNats-Pending-Bytes: %d\r\n\r\n" % (*what, messages, size)


def bad_request(problem: str) -> bytes:
    """Return why a pull is refused."""
    return status((400, b"Bad Request - " + problem.encode()))


def heartbeat(consumer_seq: int, stream_seq: int, stalled: bytes = b"") -> bytes:
    """Return a heartbeat: what was delivered last, and the flow control request that was not answered, if any."""
    text = b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: %d\r\nNats-Last-Stream: %d\r\n"
    lines = text % (consumer_seq, stream_seq)
    return lines + (b"Nats-Consumer-Stalled: %s\r\n\r\n" % stalled if stalled else b"\r\n")


def format_duration(time_ns: int) -> str:
    """Return a duration as Go prints it."""
    if time_ns < 1_000_000_000:  # noqa: PLR2004 - below a second Go changes the unit
        for unit, size in (("ms", 1_000_000), ("µs", 1_000), ("ns", 1)):
            if time_ns >= size:
                return f"{_decimal(time_ns, size)}{unit}"
        return "0s"
    minutes, rest_ns = divmod(time_ns, 60_000_000_000)
    hours, minutes = divmod(minutes, 60)
    seconds = _decimal(rest_ns, 1_000_000_000) + "s"
    if hours:
        return f"{hours}h{minutes}m{seconds}"
    return f"{minutes}m{seconds}" if minutes else seconds


def _decimal(value: int, unit: int) -> str:
    whole, rest = divmod(value, unit)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{digits}" if digits else str(whole)
