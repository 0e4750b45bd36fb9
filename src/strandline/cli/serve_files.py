"""Files that name a running server: its process id, and its addresses as JSON.

Invariants: a file is there whole or not at all. The ports file is called as nats-server's is, whatever this program is
called, for the name is what test suites look for: `nats-server_<pid>.ports`.
"""

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.broker.settings.model import format_address
from strandline.errors import InvalidInput

if TYPE_CHECKING:
    from strandline.broker.server import Server


def format_ports_name(pid: int) -> str:
    """Return the name of the ports file of a process."""
    return f"nats-server_{pid}.ports"


def ports_of(server: "Server") -> dict[str, list[str]]:
    """Return where a server listens, by what for, as nats-server tells it."""
    settings = server.settings
    found = {"nats": [format_address("nats", settings.host, server.port)]}
    if server.http_port is not None:
        found["monitoring"] = [format_address("http", settings.http_host or settings.host, server.http_port)]
    if server.websocket_port is not None and settings.websocket is not None:
        scheme = "wss" if settings.websocket.tls else "ws"
        found["websocket"] = [format_address(scheme, settings.websocket.host, server.websocket_port)]
    return found


def write_ports_file(folder: Path, server: "Server") -> None:
    """Write where a server listens into a folder."""
    _write(folder / format_ports_name(os.getpid()), json.dumps(ports_of(server), separators=(",", ":")))


def remove_ports_file(folder: Path) -> None:
    """Remove what `write_ports_file` wrote."""
    (folder / format_ports_name(os.getpid())).unlink(missing_ok=True)


def write_pid_file(file: Path) -> None:
    """Write this process's id into a file."""
    _write(file, str(os.getpid()))


def _write(file: Path, text: str) -> None:
    try:
        whole = file.with_name(f".{file.name}.new")
        whole.write_text(text, encoding="utf-8")
        whole.replace(file)
    except OSError as error:
        hint = "name a folder that exists" if isinstance(error, FileNotFoundError) else None
        raise InvalidInput(f"cannot write {file}: {error.strerror}", hint=hint) from error
