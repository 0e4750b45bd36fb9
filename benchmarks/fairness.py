"""How long a well-behaved client waits for its pings while another one misbehaves, beside nats-server.

Each kind of misbehaviour (`_bad_clients`) runs in a process of its own against a fresh server, while a neighbour pings;
both servers are measured in turn in the same run. The bound: the slowest hundredth of the pings takes at most ten times
as long as nats-server's, or no longer than `FLOOR_MS`, below which the scheduler of the machine decides; a row that
meets only the second says so. `--only` names kinds.
"""

import argparse
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks._bad_clients import CONNECT, KINDS
from benchmarks._broker_servers import OURS, PEER, BrokerServer
from benchmarks._harness import Row, report, scratch

SECONDS = 3.0
SETTLE_S = 0.5
PAUSE_S = 0.002
FLOOR_MS = 50.0
TIMES = 10.0
ANSWER_S = 60.0


@contextmanager
def misbehaving(kind: str, port: int) -> Iterator[None]:
    """Have a client misbehave for as long as the block runs."""
    guard = ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []
    client = subprocess.Popen([*guard, sys.executable, "-m", "benchmarks._bad_clients", kind, str(port)])
    try:
        time.sleep(SETTLE_S)
        assert client.poll() is None, f"{kind} has ended"
        yield
        assert client.poll() is None, f"{kind} has ended"
    finally:
        client.kill()
        client.wait()


def pings_ms(port: int, seconds: float) -> list[float]:
    """Return how long pings of one client took."""
    with socket.create_connection(("127.0.0.1", port), ANSWER_S) as client:
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.recv(1 << 16)
        client.sendall(CONNECT + b"PING\r\n")
        _await_pong(client)
        taken, until = list[float](), time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            client.sendall(b"PING\r\n")
            _await_pong(client)
            taken.append(1e3 * (time.perf_counter() - began))
            time.sleep(PAUSE_S)
        return taken


def _await_pong(client: socket.socket) -> None:
    heard = b""
    while b"PONG\r\n" not in heard:
        data = client.recv(1 << 16)
        assert data, "the server has ended the connection of one who did nothing wrong"
        heard += data


def measured(kind: str, folder: Path, seconds: float, sides: Sequence[str]) -> dict[str, list[float]]:
    """Return the pings of both servers while a client misbehaves."""
    found = {}
    for side in sides:
        server = BrokerServer(side, folder / kind / side, synced=False)
        server.start()
        try:
            with misbehaving(kind, server.port):
                found[side] = pings_ms(server.port, seconds)
        finally:
            server.stop(kill=True)
    return found


def at(values: list[float], part: float) -> float:
    """Return the value below which a part of all lie."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def row(kind: str, found: dict[str, list[float]]) -> Row:
    """Return the line of the table: the slowest hundredth, with the bound as its goal."""
    ours, peer = at(found[OURS], 0.99), at(found[PEER], 0.99)
    is_fair, is_short = ours <= TIMES * peer, ours <= FLOOR_MS
    name = f"p99 ping beside {kind}" + (f" (at most {FLOOR_MS:.0f} ms)" if is_short and not is_fair else "")
    return Row(name, ours, PEER, peer, "ms", peer / ours, 1 / TIMES, is_fair or is_short)


def main() -> None:
    """Measure every kind and print both servers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument("--sides", nargs="*", default=[PEER, OURS])
    options = parser.parse_args()
    rows = []
    with scratch() as folder:
        for kind in options.only:
            found = measured(kind, folder, options.seconds, options.sides)
            for side, values in found.items():
                middle = statistics.median(values)
                print(
                    f"{kind:36s} {side:12s} p50 {middle:8.2f}  p99 {at(values, 0.99):8.2f}  max {max(values):8.2f} ms"
                    f"  of {len(values)}",
                    flush=True,
                )
            if len(found) > 1:
                rows.append(row(kind, found))
    if rows:
        report("fairness", rows)


if __name__ == "__main__":
    main()
