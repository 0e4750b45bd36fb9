"""Check a Spark master before a session starts: Spark itself takes a minute to report that a master is unreachable."""

import re
import socket

from strandline.errors import InvalidInput, Unavailable

_ANSWERS_WITHIN_S = 5.0
_KNOWN = re.compile(r"local(\[[^\]]*\])?$|local-cluster\[.+\]$|(spark|k8s|yarn)(://.+)?$")
_HINT = "such as local[4,4] (four cores, four tries), spark://HOST:7077, k8s://HOST:PORT or yarn"


class MasterUnreachable(Unavailable):
    """No master of a standalone cluster answers at the address given."""

    def __init__(self, master: str, reason: str) -> None:
        super().__init__(f"no Spark master answers at {master}: {reason}", hint="check the address, and that it runs")
        self.master = master
        self.reason = reason


def check_master(master: str) -> None:
    """Raise `InvalidInput` if Spark has no such master, `MasterUnreachable` if a standalone master does not answer."""
    if not _KNOWN.match(master):
        raise InvalidInput(f"{master} is no Spark master", hint=_HINT)
    if not master.startswith("spark://"):
        return
    problem = ""
    for address in master.removeprefix("spark://").split(","):
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal():
            raise InvalidInput(f"{master} is no Spark master: {address} has no host and port", hint=_HINT)
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=_ANSWERS_WITHIN_S).close()
        except OSError as error:
            problem = error.strerror or str(error)
        else:
            return
    raise MasterUnreachable(master, problem)
