"""`strandline handover`: publish a stream into one of another server."""

import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from strandline.broker.mirrors.handover import HandOver
from strandline.cli.fold_options import Creds, Timeout, TlsCa, TlsCert, TlsKey, connection_settings
from strandline.cli.output import AsJson, emit
from strandline.cli.status_line import StatusLine
from strandline.errors import InvalidInput, StrandlineError, UnknownOutcome
from strandline.nats import CancelToken, JetStreamApi, NatsSocket
from strandline.nats.errors import ServerRefused, StreamNotFound
from strandline.nats.settings import NatsSettings

EXIT_INTERRUPTED = 130
PATIENCE_S = 30.0
"""How long a hand-over without --follow waits for a server that is away."""
PAUSE_S = 1.0
NO_RESPONDERS = 503
"""The status of a message that no subscriber takes."""

Stream = Annotated[
    str, typer.Argument(metavar="FROM", help="The stream: nats://HOST:PORT/STREAM, or tls://…", show_default=False)
]
Into = Annotated[str, typer.Argument(metavar="TO", help="The stream to publish into, likewise.", show_default=False)]
ToCreds = Annotated[Path | None, typer.Option("--to-creds", help="A creds file for the server of TO.")]
ToTlsCa = Annotated[Path | None, typer.Option("--to-tls-ca", help="The authority of the server of TO (PEM).")]


def handover(  # noqa: PLR0913, PLR0917 - one parameter for each option
    origin: Stream,
    target: Into,
    prefix: Annotated[str, typer.Option("--prefix", help="Publish below this prefix: `old` makes old.SUBJECT.")] = "",
    follow: Annotated[bool, typer.Option("--follow", help="Go on as FROM grows, until Ctrl-C or SIGTERM.")] = False,
    creds: Creds = None,
    to_creds: ToCreds = None,
    tls_ca: TlsCa = None,
    to_tls_ca: ToTlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    timeout_s: Timeout = 30.0,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: AsJson = False,
) -> None:
    """Publish a stream into one of another server, every message once and in order.

    It goes on by what TO holds: whatever ends it, run it again. TO has to be there, with subjects of its own.
    """
    here, stream = _parse(origin, connection_settings(creds, tls_ca, tls_cert, tls_key, timeout_s))
    there, into = _parse(target, connection_settings(to_creds, to_tls_ca, tls_cert, tls_key, timeout_s))
    if (here.urls, stream) == (there.urls, into):
        raise InvalidInput("FROM and TO are one stream", hint="name a stream of another server")
    _check(here, stream, "check the name; `nats stream ls` lists what is there")
    subjects = f"'{prefix}.>'" if prefix else "…"
    _check(there, into, f"make it first, with subjects of its own: nats stream add {into} --subjects {subjects}")
    began = time.monotonic()
    with StatusLine(quiet=quiet) as line:
        handing = _Handing(HandOver(here, stream, there, into, prefix), line, follow=follow)
        is_done = handing.run()
    record = {
        "from": f"{here.addresses}/{stream}",
        "to": f"{there.addresses}/{into}",
        "published": handing.published,
        "pending": handing.pending,
        "seconds": round(time.monotonic() - began, 3),
    }
    emit(record, as_json=as_json)
    if not is_done:
        raise typer.Exit(EXIT_INTERRUPTED)


class _Handing:
    """A hand-over that goes on when servers come back, on a thread of its own so that a signal ends it at once."""

    def __init__(self, plan: HandOver, line: StatusLine, *, follow: bool) -> None:
        self._plan = plan
        self._line = line
        self._follow = follow
        self._cancel = CancelToken()
        self._is_over = threading.Event()
        self._heard_at = time.monotonic()
        self._error: BaseException | None = None
        self._before = 0
        self.published = self.pending = 0

    def run(self) -> bool:
        """Hand over; return whether it came to its end, which with `follow` is a signal."""
        thread = threading.Thread(target=self._work, name="strandline-handover")
        before = signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            thread.start()
            self._is_over.wait()  # a `join` that a signal interrupts takes the thread for ended
        except KeyboardInterrupt:
            self._cancel.set()
            self._is_over.wait()
        finally:
            signal.signal(signal.SIGTERM, before)
        thread.join()
        if self._error is not None:
            raise self._error
        return self._follow or not self._cancel.is_set()

    def _work(self) -> None:
        try:
            self._hand_over()
        finally:
            self._is_over.set()

    def _hand_over(self) -> None:
        while not self._cancel.is_set():
            try:
                self._plan.run(follow=self._follow, cancel=self._cancel, progress=self._tell)
            except BaseException as error:  # noqa: BLE001 - the waiting thread raises it
                if self._cancel.is_set():
                    return
                if not isinstance(error, StrandlineError) or not self._may_go_on(error):
                    self._error = self._explained(error)
                    return
                self._line.say(f"{error}; trying again")
                self._before = self.published
                self._cancel.wait(PAUSE_S)
            else:
                return

    def _may_go_on(self, error: StrandlineError) -> bool:
        is_passing = error.retryable or isinstance(error, UnknownOutcome)  # what is there tells how far it came
        return (
            is_passing
            and not self._is_unheard(error)
            and (self._follow or time.monotonic() - self._heard_at < PATIENCE_S)
        )

    def _is_unheard(self, error: BaseException) -> bool:
        return isinstance(error, ServerRefused) and error.code == NO_RESPONDERS and not self.published

    def _explained(self, error: BaseException) -> BaseException:
        if not self._is_unheard(error):
            return error
        below = f"{self._plan.prefix}." if self._plan.prefix else ""
        return InvalidInput(
            f"stream {self._plan.into!r} takes nothing that is published on subjects of {self._plan.stream!r}",
            hint=f"let its subjects be {below}SUBJECT for each SUBJECT there, or give another --prefix",
        )

    def _tell(self, published: int, pending: int) -> None:
        self._heard_at = time.monotonic()
        self.published, self.pending = self._before + published, pending
        self._line.show(f"{self.published:,} messages published, {pending:,} left")


def _parse(address: str, settings: NatsSettings) -> tuple[NatsSettings, str]:
    """Return how to reach the server of an address, and the stream."""
    servers, slash, stream = address.rpartition("/")
    if not slash or not stream or servers.endswith((":", "/")) or "@" in stream:
        raise InvalidInput("an address names no stream", hint="give nats://host:port/stream, or tls://…")
    given = NatsSettings(servers)
    return replace(settings, servers=given.servers, user_info=given.user_info), stream


def _check(settings: NatsSettings, stream: str, hint: str) -> None:
    with NatsSocket.connect(settings) as connection:
        try:
            JetStreamApi(connection, settings.api_prefix).stream(stream)
        except StreamNotFound:
            raise InvalidInput(f"there is no stream {stream!r} at {settings.addresses}", hint=hint) from None
