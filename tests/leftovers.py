"""Nothing that a test leaves behind reaches the next: child processes, environment, working folder, signals.

Invariants: children of tests start with default signals, whatever the parent of the run ignores (`nohup`, background
jobs of scripts). A child that outlives its test is killed, anything else is put back, and the test that left it fails.
What fixtures wider than a test have started stays until they end.
"""

import os
import signal
import sys
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import psutil
import pytest

ENDS_WITHIN_S = 60.0
"""How long a child that still runs at the end of its test may take to end by itself."""

# A hangup stays as it is: a run under `nohup` outlives its terminal, and so do its children.
_AS_INHERITED = {signal.SIGHUP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGPIPE, signal.SIGXFSZ}
_HANDLERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
# These live as long as the process that needs them: helpers of `multiprocessing`, and the Java of Spark.
_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "pyspark-shell")
_HANDLERS_OF = "strandline.spark.console"  # it sets one for as long as there is that Java

_STARTS = {"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn"}


class _Children:
    """The children of this process that may live: those of fixtures wider than a test, and helpers of Python."""

    def __init__(self) -> None:
        self.accepted: set[int] = set()
        self._has_started = False

    def watch(self) -> None:
        """Notice from now on when a child is started: to list children takes milliseconds, too long for every test."""
        sys.addaudithook(self._note)

    def _note(self, event: str, _arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            self._has_started = True

    def accept(self) -> None:
        """Let those live that run now."""
        self.accepted |= self.new()

    def new(self) -> set[int]:
        """Return those that were started since the last call and are not accepted."""
        if not self._has_started:
            return set()
        self._has_started = False
        return _all_children() - self.accepted


def _all_children() -> set[int]:
    """Return the children of this process, from the kernel's own list where it has one: psutil reads all processes."""
    if not Path("/proc/thread-self/children").exists():
        return {child.pid for child in psutil.Process().children()}
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found.update(map(int, (thread / "children").read_text().split()))
    return found


_children = _Children()
_children.watch()
_shared_servers: list["_Server"] = []
_owned_servers: list["_Server"] = []


class _Server(Protocol):
    @property
    def pid(self) -> int: ...

    @property
    def is_running(self) -> bool: ...

    def start(self) -> None: ...

    def kill(self) -> None: ...


@contextmanager
def shared_server(server: _Server) -> Iterator[None]:
    """Have tests share a server that they may not leave dead; in the end it is killed, for its data go as well."""
    _shared_servers.append(server)
    try:
        yield
    finally:
        _shared_servers.remove(server)
        server.kill()  # in good order it would save thousands of streams first


@contextmanager
def owned_servers(servers: Sequence[_Server]) -> Iterator[None]:
    """Own servers during the block, which ends them: they outlive a test, whoever starts them again meanwhile."""
    _owned_servers.extend(servers)
    try:
        yield
    finally:
        for server in servers:
            _owned_servers.remove(server)


def restore_signals() -> None:
    """Undo what the parent of this process ignores or blocks: both would be inherited by every child."""
    for number in signal.valid_signals() - _AS_INHERITED:
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class _State(NamedTuple):
    environment: dict[str, str]
    folder: str
    handlers: dict[int, Any]
    blocked: set[int]

    @classmethod
    def now(cls) -> "_State":
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
        handlers: dict[int, Any] = {number: signal.getsignal(number) for number in _HANDLERS}
        return cls(environment, os.getcwd(), handlers, set(signal.pthread_sigmask(signal.SIG_BLOCK, ())))  # noqa: PTH109

    def put_back(self, found: "_State") -> list[str]:
        """Undo what differs from this state; return it in words."""
        changed = sorted(dict(self.environment.items() ^ found.environment.items()))
        for name in changed:
            os.environ.pop(name, None)
            if name in self.environment:
                os.environ[name] = self.environment[name]
        problems = [f"changed the environment: {', '.join(changed)}"] if changed else []
        if found.folder != self.folder:
            os.chdir(self.folder)
            problems.append(f"changed the working folder to {found.folder}")
        for number in _HANDLERS:
            handler = found.handlers[number]
            if handler != self.handlers[number] and getattr(handler, "__module__", "") != _HANDLERS_OF:
                signal.signal(number, self.handlers[number])
                problems.append(f"left a handler of {signal.Signals(number).name}")
        if found.blocked != self.blocked:
            signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)
            names = [signal.Signals(number).name for number in sorted(found.blocked ^ self.blocked)]
            problems.append(f"left signals blocked, which children inherit: {', '.join(names)}")
        return problems


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
    """Let the children live that a fixture of more than one test starts."""
    result = yield
    if fixturedef.scope != "function":
        _children.accept()
    return result


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """Kill the processes that a test has left running, undo what else it has left, and report it."""
    before = _State.now()
    yield
    problems = before.put_back(_State.now())
    lasting = {server.pid for server in (*_shared_servers, *_owned_servers) if server.is_running}
    problems += [f"left a process running: {each}" for each in _kill(_children.new() - lasting)]
    for server in _shared_servers:
        if not server.is_running:
            server.start()
            problems.append("killed a server that tests share")
    if problems:
        pytest.fail("; ".join(f"the test {problem}" for problem in problems), pytrace=False)


_NAMES = pytest.StashKey[set[str]]()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Remember what is in the folder where tests run."""
    session.stash[_NAMES] = _names(session.config.rootpath)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail the run if tests have left something in the folder where they run; which one it was, workers cannot tell."""
    before: set[str] = session.stash[_NAMES]
    found = sorted(_names(session.config.rootpath) - before)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if found and reporter is not None and not hasattr(session.config, "workerinput"):
        reporter.write_line(f"\na test left in {session.config.rootpath}: {', '.join(found)}", red=True)
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _names(folder: Path) -> set[str]:
    return {name for name in os.listdir(folder) if not name.startswith((".", "_"))}  # noqa: PTH208 - names


def _kill(pids: set[int]) -> list[str]:
    """End children that do not end by themselves; return them in words. To reap them is left to their `Popen`."""
    commands = {pid: command for pid in pids if (command := _command(pid))}
    give_up = time.monotonic() + ENDS_WITHIN_S
    for pid in commands:
        while not _has_ended(pid) and time.monotonic() < give_up:
            time.sleep(0.01)
    alive = [pid for pid in commands if not _has_ended(pid)]
    for pid in alive:
        for each in [*psutil.Process(pid).children(recursive=True), psutil.Process(pid)]:
            with suppress(psutil.NoSuchProcess):
                each.kill()
        _has_ended(pid, wait=True)
    return [f"{pid} ({commands[pid]})" for pid in alive]


def _command(pid: int) -> str:
    """Return the command of a child that is to end, "" if it has ended or is a helper of Python."""
    try:
        command = " ".join(psutil.Process(pid).cmdline())
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return ""
    return "" if any(helper in command for helper in _HELPERS) else command[:200]


def _has_ended(pid: int, *, wait: bool = False) -> bool:
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT | (0 if wait else os.WNOHANG)) is not None
    except ChildProcessError:
        return True
