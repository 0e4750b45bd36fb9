"""How long a server takes from its start to its first answer, beside nats-server and a bare interpreter.

Commands are measured too: `strandline --help`, and `strandline findings list` over the state of a small scan.

Both servers start over an empty folder, in turn, with JetStream; the answer is the PONG to a first PING. Bytecode is
written before anything is measured; a second figure is for where there is none at all, that of the libraries included.
"""

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks._bad_clients import CONNECT
from benchmarks._harness import alone, compare, report, scratch

ROUNDS = 7
GOAL_S = 0.4
HELP_GOAL_S = 0.3
LIST_GOAL_S = 0.6
WITHIN_S = 60.0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


def first_answer_s(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Start a server, return the seconds until it has answered a ping, and end it."""
    port = _free_port()
    store = tempfile.mkdtemp(dir=folder)
    began = time.perf_counter()
    server = subprocess.Popen(
        [*command, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", store],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    try:
        while time.perf_counter() - began < WITHIN_S:
            try:
                client = socket.create_connection(("127.0.0.1", port), WITHIN_S)
            except OSError:
                assert server.poll() is None, f"{command[0]} has ended"
                time.sleep(0.001)
                continue
            with client:
                heard = client.recv(1 << 16)
                client.sendall(CONNECT + b"PING\r\n")
                while b"PONG" not in heard:
                    heard = client.recv(1 << 16)
                return time.perf_counter() - began
        raise TimeoutError(f"{command[0]} does not answer")
    finally:
        server.kill()
        server.wait()


def command_s(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> float:
    """Return the seconds that a command takes from its start to its end."""
    began = time.perf_counter()
    subprocess.run(command, check=True, cwd=folder, env=environment, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began


def main() -> None:
    """Measure in turn, print the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    scripts = sysconfig.get_path("scripts")
    program = str(Path(scripts) / "strandline")
    ours = [program, "serve"]
    peer = [str(shutil.which("nats-server", path=scripts))]
    with scratch() as folder:
        cached = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
        uncached = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPYCACHEPREFIX": str(folder / "nothing")}
        jobs: dict[str, Callable[[], float]] = {
            "ours": lambda: first_answer_s(ours, folder, cached),
            "peer": lambda: first_answer_s(peer, folder, cached),
            "uncached": lambda: first_answer_s(ours, folder, uncached),
            "help": lambda: command_s([program, "--help"], folder, cached),
            "list": lambda: command_s([program, "findings", "list"], folder, cached),
            "bare": lambda: command_s([sys.executable, "-c", "pass"], folder, cached),
        }
        (folder / "scanned").mkdir()
        (folder / "scanned" / "a.txt").write_text("nothing to find\n")
        command_s([program, "scan", "--without-spark", "--quiet", "scanned"], folder, cached)
        jobs["help"]()
        jobs["list"]()
        jobs["ours"]()  # writes the bytecode
        taken: dict[str, list[float]] = {name: [] for name in jobs}
        for _ in range(rounds):
            for name, job in jobs.items():
                taken[name].append(job())
    middle = {name: statistics.median(values) for name, values in taken.items()}
    report(
        "start",
        [
            compare("start to first answer", middle["ours"], "nats-server", middle["peer"], "s", better="lower"),
            alone("the same without any bytecode", middle["uncached"], "s", better="lower"),
            alone("start to first answer, the best", min(taken["ours"]), "s", better="lower", goal=GOAL_S),
            alone("strandline --help", middle["help"], "s", better="lower", goal=HELP_GOAL_S),
            alone("strandline findings list", middle["list"], "s", better="lower", goal=LIST_GOAL_S),
            alone("python -c pass", middle["bare"], "s", better="lower"),
        ],
    )


if __name__ == "__main__":
    main()
