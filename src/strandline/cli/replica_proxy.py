"""`strandline replica proxy`: an HTTP proxy before the nodes of a replica, which needs its address alone."""

import os
import queue
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Self

import typer

from strandline.cli.ending_signals import ending_signals
from strandline.cli.output import AsJson, to_json
from strandline.cli.replica_options import ReplicaAddress, replica_at
from strandline.errors import InvalidInput
from strandline.replica import ReplicaDirectory, discover

PORT_MAX = 65535
LINES_MAX = 10_000
"""How many lines of the log wait for a reader of stdout."""
END_S = 5.0
"""How long the end waits for it."""

Listen = Annotated[str, typer.Option("--listen", metavar="HOST:PORT", help="Where to serve; port 0 takes a free one.")]
Hold = Annotated[float, typer.Option("--hold", min=0.0, help="Seconds for which a request waits for a leader.")]
HeldMax = Annotated[int, typer.Option("--held-max", min=0, help="How many requests wait for a leader at once.")]
ConnectionsMax = Annotated[int, typer.Option("--connections-max", min=1, help="How many clients are served at once.")]
ReadMethods = Annotated[
    list[str] | None,
    typer.Option("--read-method", metavar="METHOD", help="A method that reads; GET, HEAD and OPTIONS unless given."),
]
WritePaths = Annotated[
    list[str] | None,
    typer.Option("--write-path", metavar="PATH", help="A path whose requests write, whatever their method."),
]
Cookie = Annotated[
    str,
    typer.Option(
        "--cookie",
        metavar="NAME",
        help="The cookie with the position of a write, as the nodes have it in RoutingRules.",
    ),
]
TunnelIdle = Annotated[
    float, typer.Option("--tunnel-idle", min=1.0, help="Seconds after which a silent WebSocket is closed.")
]
HealthPath = Annotated[str, typer.Option("--health-path", metavar="PATH", help="Where the proxy tells how it is.")]
Trust = Annotated[
    bool, typer.Option("--trust-forwarded", help="Believe X-Forwarded-… of clients: another proxy stands before.")
]
Drain = Annotated[float, typer.Option("--drain", min=0.0, help="Seconds that requests have to finish after SIGTERM.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Print no line for each request.")]


def proxy(  # noqa: PLR0913, PLR0917 - one parameter per option
    address: ReplicaAddress,
    listen: Listen = "127.0.0.1:8080",
    hold_s: Hold = 15.0,
    held_max: HeldMax = 256,
    connections_max: ConnectionsMax = 1000,
    read_methods: ReadMethods = None,
    write_paths: WritePaths = None,
    cookie: Cookie = "strandline-position",
    tunnel_idle_s: TunnelIdle = 300.0,
    health_path: HealthPath = "/strandline/health",
    trusts_peers: Trust = False,
    drain_s: Drain = 30.0,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Route HTTP requests: reads to followers, writes to the leader.

    The leader and the followers are found in the replica. Writes are held during a failover. A write of unknown outcome
    is not sent again without an Idempotency-Key. SIGTERM finishes what was begun.
    """
    from strandline.replica.routing import (  # noqa: PLC0415 - help needs no extra
        ProxySettings,
        ProxyThread,
        RoutingLimits,
        RoutingRules,
    )

    host, port = parse_listen(listen)
    methods = frozenset(read_methods) if read_methods else RoutingRules().read_methods
    settings = ProxySettings(
        rules=RoutingRules(methods, tuple(write_paths or ()), cookie=cookie),
        limits=RoutingLimits(hold_s=hold_s, held_max=held_max, tunnel_idle_s=tunnel_idle_s),
        connections_max=connections_max,
        health_path=health_path,
        trusts_peers=trusts_peers,
    )

    lines = LineWriter()

    def log(record: Mapping[str, object]) -> None:
        lines.write(_format_request(record, as_json=as_json))

    with ending_signals() as ending, replica_at(address) as (store, _), lines:
        directory = ReplicaDirectory(lambda: discover(store)).start()
        try:
            server = ProxyThread(
                directory, settings, host=host, port=port, log=None if quiet else log, drain_s=drain_s
            ).start()
            try:
                print(
                    to_json({"listening": server.address}) if as_json else f"listening at {server.address}", flush=True
                )
                ending.wait()
            finally:
                server.close()
        finally:
            directory.close()


def parse_listen(text: str) -> tuple[str, int]:
    """Return the host and the port of an address to listen at."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or int(port) > PORT_MAX:
        raise InvalidInput(f"{text!r} is no address to listen at", hint="give it as HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]"), int(port)


class LineWriter:
    """Writes lines to stdout in a thread: a reader that stalls costs lines, and holds up no request."""

    def __init__(self) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue(LINES_MAX)
        self._dropped = 0
        self._thread = threading.Thread(target=self._run, name="strandline-log", daemon=True)

    def write(self, line: str) -> None:
        """Have a line written soon; it is dropped, and counted, where too many wait."""
        try:
            self._lines.put_nowait(line)
        except queue.Full:
            self._dropped += 1

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(queue.Full):
            self._lines.put(None, timeout=END_S)
        self._thread.join(END_S)

    def _run(self) -> None:
        while (line := self._lines.get()) is not None:
            dropped, self._dropped = self._dropped, 0
            text = line + "\n" + (to_json({"dropped_lines": dropped}) + "\n" if dropped else "")
            data = text.encode(errors="backslashreplace")
            with suppress(OSError):  # where no process reads the log, requests are served all the same
                while data:  # past the buffer of stdout, whose lock would hold up the end of the process
                    data = data[os.write(sys.stdout.fileno(), data) :]


def _format_request(record: Mapping[str, object], *, as_json: bool) -> str:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    if as_json:
        return to_json({"time": time, **record})
    line = "{time} {client} {method} {path} {status} {kind} {node} {duration_ms} ms".format(time=time, **record)
    failures = record["failures"]
    return line + (f" after {failures}" if failures else "")
