"""The operations of the protocol, which end sends them, and how large they may be."""

from dataclasses import dataclass
from enum import Enum, IntEnum


class Op(IntEnum):
    """The operation of a frame, as a column holds it."""

    INFO = 1
    CONNECT = 2
    PUB = 3
    HPUB = 4
    SUB = 5
    UNSUB = 6
    MSG = 7
    HMSG = 8
    PING = 9
    PONG = 10
    OK = 11
    ERR = 12


class Side(Enum):
    """The end whose frames are parsed."""

    CLIENT = "client"
    SERVER = "server"


WORDS = {op.name.encode(): op for op in Op} | {b"+OK": Op.OK, b"-ERR": Op.ERR}
del WORDS[b"OK"], WORDS[b"ERR"]

OPS_OF: dict[Side, dict[bytes, Op]] = {
    Side.CLIENT: {word: op for word, op in WORDS.items() if op not in (Op.MSG, Op.HMSG)},
    Side.SERVER: {word: WORDS[word] for word in (b"INFO", b"MSG", b"HMSG", b"+OK", b"-ERR", b"PING", b"PONG")},
}
"""The operations that each end may send, by their word; clients also those that nats-server takes and does not heed."""


@dataclass(frozen=True, slots=True)
class WireLimits:
    """What is refused before it is kept: the payload (headers included), a control line, and the line of INFO."""

    payload_bytes_max: int = 1 << 20
    line_bytes_max: int = 4096
    info_bytes_max: int = 1 << 18
