"""What `strandline serve` does: the broker as a server of its own, by the command line of nats-server.

It takes nats-server's flags in nats-server's syntax, so that a script `exec strandline serve "$@"` in the place of
`nats-server` is all that a test suite or a container needs. Signals: TERM and INT end it in good order, USR2 lets
clients go first (lame duck), HUP reads the configuration again, USR1 opens the log file again.

Invariants: what is imported before a server is ready is what it needs, for people wait for it.
"""

import asyncio
import gc
import os
import resource
import signal
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.broker.settings.errors import FlagRefused
from strandline.broker.settings.flags import CommandLine, parse_command_line, usage
from strandline.broker.settings.model import ServerSettings
from strandline.broker.settings.reload import describe_changes
from strandline.cli.exit_codes import exit_code
from strandline.cli.serve_config import config_path_of, configured_flags, has_alarms
from strandline.cli.serve_files import remove_ports_file, write_pid_file, write_ports_file
from strandline.cli.serve_log import ServerLog
from strandline.errors import InvalidInput, StrandlineError
from strandline.version import __version__

if TYPE_CHECKING:  # imported when a server starts
    from strandline.alarms import AlarmWatch
    from strandline.broker.server import Server

EXIT_USAGE = 2
TIDY_S = 15.0
NAMES = {
    signal.SIGTERM: "terminated",
    signal.SIGINT: "interrupt",
    signal.SIGHUP: "hangup",
    signal.SIGUSR1: "user defined signal 1",
    signal.SIGUSR2: "user defined signal 2",
}
SENT = {
    "ldm": signal.SIGUSR2,
    "stop": signal.SIGKILL,
    "quit": signal.SIGINT,
    "term": signal.SIGTERM,
    "reopen": signal.SIGUSR1,
    "reload": signal.SIGHUP,
}


def run(arguments: Sequence[str], *, use_file: bool = True, config: Path | None = None) -> int:
    """Do what a command line of nats-server asks for, and return the exit code.

    What it leaves out is taken from variables and from `strandline.toml`: the one at `config`, or the nearest.
    """
    try:
        line = _parse_alone(arguments) or parse_command_line(
            [*configured_flags(arguments, use_file=use_file, given=config), *arguments]
        )
    except FlagRefused as error:
        print(f"{error}\n`strandline serve -h` lists the flags", file=sys.stderr)
        return EXIT_USAGE
    if line.action == "help":
        print(usage("strandline serve"))
    elif line.action == "version":
        print(f"nats-server: v{_speaks_as()}")  # what scripts compare
        print(f"strandline {__version__}", file=sys.stderr)
    elif line.action == "signal":
        _send(line.signal, line.pid)
    elif line.action == "test":
        configured = line.settings()
        configured.refuse_doubts()
        _check_certificates(configured.settings)
        print(f"strandline: configuration file {line.config} is valid", file=sys.stderr)
    else:
        return _serve(line, config_path_of(use_file=use_file, given=config))
    return 0


def _parse_alone(arguments: Sequence[str]) -> CommandLine | None:
    """Return a command line that asks for help, a version or a signal, which no configuration changes; else None."""
    try:
        line = parse_command_line(arguments)
    except InvalidInput:  # the configuration may have what is missing
        return None
    return line if line.action in ("help", "version", "signal") else None


def _check_certificates(settings: ServerSettings) -> None:
    from strandline.broker.sockets.tls import server_context  # noqa: PLC0415 - only where it is asked for

    for tls in (settings.tls, settings.websocket.tls if settings.websocket is not None else None):
        if tls is not None:
            server_context(tls)


def _speaks_as() -> str:
    from strandline.broker.api.config import SERVER_VERSION  # noqa: PLC0415 - slow to import

    return SERVER_VERSION


def _raise_handles() -> None:
    """Let this process have as many files and connections as it may, as Go's programs do."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _send(name: str, pid: str) -> None:
    if not pid:
        raise InvalidInput("which server? a signal needs a process id", hint=f"--signal {name}=PID, or =FILE of one")
    number = pid
    if not pid.isdigit():
        try:
            number = Path(pid).read_text(encoding="utf-8").strip()
        except OSError as error:
            raise InvalidInput(f"cannot read {pid}: {error.strerror}") from error
    if not number.isdigit():
        raise InvalidInput(f"{pid} holds no process id")
    try:
        os.kill(int(number), SENT[name])
    except OSError as error:
        raise InvalidInput(f"cannot signal process {number}: {error.strerror}") from error


def _serve(line: CommandLine, config_path: Path | None) -> int:
    configured = line.settings()
    log = ServerLog(configured.settings.log)
    log.note("Starting strandline")
    log.note(f"  Version:  {_speaks_as()} (strandline {__version__})")
    if line.config is not None:
        log.note(f"Using configuration file: {line.config}")
    for note in (*configured.notes, *configured.doubts):
        log.tell("WRN", note)
    try:
        asyncio.run(_Serving(line, configured.settings, log, config_path).run())
    except StrandlineError as error:
        log.tell("FTL", f"{error} ({error.hint})" if error.hint and log.settings.form == "json" else str(error))
        if log.settings.form == "json":  # what reads the log has it, and text would be no line of it
            return exit_code(error)
        raise
    finally:
        log.close()
    return 0


class _Serving:
    """A server from its start to its end."""

    def __init__(self, line: CommandLine, settings: ServerSettings, log: ServerLog, config_path: Path | None) -> None:
        self._line = line
        self._config_path = config_path
        self._settings = settings
        self._log = log
        self._over = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None

    async def run(self) -> None:
        _raise_handles()
        for number in (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2):
            signal.signal(number, signal.SIG_IGN)  # a signal while the server starts is not meant to end it
        from strandline.broker.embedded_server import serve as serving  # noqa: PLC0415 - settings are checked before

        try:
            await self._run(serving)
        finally:
            if self._settings.ports_file_dir:
                remove_ports_file(self._settings.ports_file_dir)

    async def _run(self, serving: Callable[..., AbstractAsyncContextManager["Server"]]) -> None:
        if self._settings.jetstream is not None:
            self._log.note("Starting JetStream")
        async with (
            serving(self._settings, log=self._log.tell) as server,
            self._alarms(server) as alarms,
            self._metrics(server, alarms),
        ):
            self._listen_to_signals(server)
            asyncio.get_running_loop().set_exception_handler(self._failed)
            if self._settings.pid_file:
                write_pid_file(self._settings.pid_file)
            if self._settings.ports_file_dir:
                write_ports_file(self._settings.ports_file_dir, server)
            self._tell_where(server)
            # What was imported stays: it need not be looked at again, and collections are seldom worth their time.
            gc.freeze()
            gc.set_threshold(50_000, 10, 10)
            gc.enable()
            self._tidy(server)
            await self._over.wait()
            self._log.note("Initiating Shutdown...")
            if self._settings.jetstream is not None:
                self._log.note("Initiating JetStream Shutdown...")
        if self._settings.jetstream is not None:
            self._log.note("JetStream Shutdown")
        self._log.note("Server Exiting..")

    @asynccontextmanager
    async def _alarms(self, server: "Server") -> "AsyncIterator[AlarmWatch | None]":
        """Raise alarms for the block, where receivers are configured."""
        if not has_alarms(self._config_path):
            yield None
            return
        from strandline.alarms import AlarmWatch  # noqa: PLC0415 - few servers
        from strandline.broker.conditions import server_conditions  # noqa: PLC0415 - as above
        from strandline.cli.alarm_options import alarm_settings  # noqa: PLC0415 - as above
        from strandline.config import read_file  # noqa: PLC0415 - as above

        file = None if self._config_path is None else read_file(self._config_path, os.environ)
        watch = AlarmWatch(alarm_settings(file), lambda: server_conditions(server))
        with ExitStack() as stack:
            stack.enter_context(watch)
            try:
                yield watch
            finally:
                await asyncio.to_thread(stack.close)  # its threads ask the loop

    @asynccontextmanager
    async def _metrics(self, server: "Server", alarms: "AlarmWatch | None") -> AsyncIterator[None]:
        """Serve metrics for the block, where they are asked for."""
        port = self._settings.metrics_port
        if port is None:
            yield
            return
        from strandline.broker.metrics import server_health, server_metrics  # noqa: PLC0415 - few servers
        from strandline.metrics import serve_metrics  # noqa: PLC0415 - as above

        health = server_health(server)
        sources = [server_metrics(server), *([] if alarms is None else [alarms.metrics])]
        page = serve_metrics(port, *sources, host=self._settings.metrics_host, health=health)
        with ExitStack() as stack:
            served = await asyncio.to_thread(stack.enter_context, page)  # it asks the loop
            if served is not None:
                self._log.note(f"Serving metrics at {served.address}")
            yield

    def _tidy(self, server: "Server", seen: int = -1, tidied: int = 0) -> None:
        """Collect garbage while no client waits: nothing has come since the last time, and something before."""
        taken = sum(account.router.in_msgs for account in server.accounts.by_name.values())
        if taken == seen != tidied:
            gc.collect()
            tidied = taken
        asyncio.get_running_loop().call_later(TIDY_S, self._tidy, server, taken, tidied)

    def _tell_where(self, server: "Server") -> None:
        tell = self._log.note
        tell(f"  Name:     {server.server_name}")
        tell(f"  ID:       {server.server_id}")
        if server.http_port is not None:
            tell(f"Starting http monitor on {self._settings.http_host or self._settings.host}:{server.http_port}")
        if server.store_dir is not None:
            tell(f'  Store Directory: "{server.store_dir}/strandline"')
        if server.websocket_port is not None and self._settings.websocket is not None:
            scheme = "wss" if self._settings.websocket.tls else "ws"
            tell(
                f"Listening for websocket clients on {scheme}://{self._settings.websocket.host}:{server.websocket_port}"
            )
        tell(f"Listening for client connections on {self._settings.host}:{server.port}")
        if self._settings.tls:
            tell("TLS required for client connections")
        tell("Server is ready")

    def _listen_to_signals(self, server: "Server") -> None:
        loop = asyncio.get_running_loop()
        for number in NAMES:
            loop.add_signal_handler(number, self._signalled, number, server)

    def _signalled(self, number: signal.Signals, server: "Server") -> None:
        self._log.note(f'Trapped "{NAMES[number]}" signal')
        match number:
            case signal.SIGHUP:
                self._reload(server)
            case signal.SIGUSR1:
                self._reopen()
            case signal.SIGUSR2:
                if self._leaving is None:
                    self._log.note("Entering lame duck mode, stop accepting new clients")
                    self._leaving = asyncio.ensure_future(self._leave(server))
            case _:
                self._over.set()

    def _failed(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an unexpected error."""
        del loop
        error = context.get("exception")
        lines = traceback.format_exception(error) if isinstance(error, BaseException) else []
        self._log.error("".join([context["message"], "\n", *lines]).rstrip())

    async def _leave(self, server: "Server") -> None:
        await server.lame_duck()
        self._over.set()

    def _reload(self, server: "Server") -> None:
        if self._line.config is None:
            self._log.error(
                "Failed to reload server configuration: "
                "can only reload config when a file is provided using -c or --config"
            )
            return
        try:
            new = self._line.settings().settings
            changed = describe_changes(self._settings, new)
            server.reload(new)
        except StrandlineError as error:
            self._log.error(f"Failed to reload server configuration: {error}")
            return
        self._settings = new
        self._change_files(new)
        for change in changed:
            self._log.note(f"Reloaded: {change}")
        self._log.note("Reloaded server configuration")

    def _change_files(self, new: ServerSettings) -> None:
        try:
            self._log.change(new.log)
            if new.pid_file:
                write_pid_file(new.pid_file)
        except StrandlineError as error:
            self._log.error(str(error))

    def _reopen(self) -> None:
        if self._settings.log.file is None:
            self._log.note("File log re-open ignored, not a file logger")
            return
        try:
            self._log.reopen()
        except StrandlineError as error:
            self._log.error(str(error))
            return
        self._log.note("File log re-opened")
