"""One client's connection as a state machine: bytes in, bytes out, no socket.

Invariants: frames take effect in order, runs of messages together. Once `closing` has a reason, input is ignored,
nothing but `out` is sent, and every subscription has ended. While a bcrypt check runs in the background, input is held,
up to `HELD_BYTES_MAX`.
"""

import sys
from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING

from strandline.broker.api.trace_headers import TRACE_DEST
from strandline.broker.core import connection_log
from strandline.broker.core.auth import PendingCheck, Waiter
from strandline.broker.core.close_reasons import (
    ACCOUNT_CONNECTIONS,
    AUTH_TIMEOUT,
    AUTH_VIOLATION,
    BAD_PROTOCOL_VERSION,
    CLIENT_CLOSED,
    LINE_EXCEEDED,
    NEEDS_HEADERS,
    PARSE_ERROR,
    PAYLOAD_EXCEEDED,
    PROTOCOL_VIOLATION,
    STALE,
)
from strandline.broker.core.connect import ConnectOptions, parse_connect
from strandline.broker.core.outbox import Outbox
from strandline.broker.core.permissions import ClientPermissions, is_pattern, shown
from strandline.broker.core.publish import publish, publish_traced
from strandline.broker.core.server_info import ServerInfo, new_nonce
from strandline.broker.core.subscriptions import Subscription
from strandline.broker.routes import Origin
from strandline.clock import Clock
from strandline.wire import (
    OK,
    PING,
    PONG,
    Frame,
    FrameBatch,
    FrameParser,
    LineTooLong,
    Op,
    PayloadTooLarge,
    ProtocolViolation,
    Side,
    format_err,
)

if TYPE_CHECKING:
    from strandline.broker.core.accounts import Accounts, Login
    from strandline.broker.core.router import Router

FIRST_PING_NS = 2_000_000_000
PROTOCOL_MAX = 1
HELD_BYTES_MAX = 1 << 20
SLICE_S = 0.002
"""CPU time after which the remaining frames of a client wait for the next cycle of the loop."""
CONTROLS_PER_LOOK = 32
"""How many control frames take effect between two readings of the clock."""
DELIVERIES_PER_RUN = 1 << 14
"""How many deliveries are made at most between two readings of the clock."""
SLOW_PER_RUN = 4
"""How many messages make a run where single messages may be slow."""
_SLOW_REQUEST_MARKS = (b"$SYS.REQ.", b"\r\n" + TRACE_DEST)
"""Bytes found in requests for monitoring pages and in traced messages."""
LIMIT_DIGITS_MAX = 9
"""An UNSUB limit with more digits is ignored, as in nats-server."""
REASONS: dict[type, str] = {PayloadTooLarge: PAYLOAD_EXCEEDED, LineTooLong: LINE_EXCEEDED}


class Session(Outbox):
    """A connected client; `host` and `port` are its own, `kind` is STANDARD or WEBSOCKET."""

    def __init__(
        self,
        client_id: int,
        server_info: ServerInfo,
        accounts: "Accounts",
        clock: Clock,
        on_output: Callable[[], None],
        *,
        host: str = "",
        port: int = 0,
        kind: str = "STANDARD",
    ) -> None:
        super().__init__(on_output, server_info.max_pending)
        self.client_id = client_id
        self.server_info = server_info
        self.accounts = accounts
        self.clock = clock
        self.host, self.port, self.kind = host, port, kind
        self.options = ConnectOptions()
        self.subscriptions: dict[bytes, Subscription] = {}
        self.started_ns = self.active_ns = clock.now_ns()
        self.in_msgs = self.in_bytes = self.violations = 0
        self.label = ""
        """The client's label in log lines, once it is connected."""
        self.rtt_ns = 0
        self.tls: tuple[str, str, str] | None = None
        """Subject of the client's certificate, TLS version and cipher, if it uses TLS."""
        self.nonce = new_nonce() if accounts.needs_nonce else ""
        self.router: Router | None = None
        self.permissions = ClientPermissions()
        self.origin = Origin(client_id, "", host=host, start_ns=self.started_ns)
        self.echo, self.headers, self.no_responders = True, False, False
        self.trace_dest, self.trace_sampling = b"", 0
        self._parser = FrameParser(Side.CLIENT, server_info.wire_limits)
        self._pings_out = 0
        self._pinged_ns = 0
        self._greets_again = False
        self._connected = False
        self.payload_max: int | None = None
        self._subscriptions_max = sys.maxsize
        self._held_input: list[bytes] | None = None
        self._deferred_frames = FrameBatch.empty()
        self._fan_out = 1
        """An estimate of how many subscriptions receive a message of this client."""
        self.is_deferred = False
        """Frames are deferred, and `resume` must be called."""
        self.on_deferred: Callable[[], None] | None = None
        """Schedules `resume` when frames are deferred; without it, all frames take effect at once."""
        self.next_due_ns = self.started_ns + server_info.auth_timeout_ns
        login = accounts.before_connect(kind)
        if login is not None:
            self._enter(login)

    # Called by the connection

    def greeting(self) -> bytes:
        """Return the first INFO frame."""
        required = self.router is None or self.accounts.asks_all_for_credentials
        return self.server_info.format_info(self.client_id, self.host, nonce=self.nonce, auth_required=required)

    def feed(self, data: bytes) -> None:
        """Process bytes that the client has sent."""
        if self.closing is not None:
            return
        self.active_ns = self.clock.now_ns()
        if self._held_input is not None:
            self._hold(data)
            return
        try:
            frames = self._parser.feed(data)
        except ProtocolViolation as problem:
            self._fail_on_violation(problem)
            return
        self._take(frames)

    def tick(self, now_ns: int) -> None:
        """Run due timers: authentication timeout, pings, stale connections; see `next_due_ns`."""
        if self.closing is not None or now_ns < self.next_due_ns:
            return
        if self.router is None:
            self.fail("Authentication Timeout", AUTH_TIMEOUT)
            return
        connection_log.log_ping_timer(self)
        interval = self.server_info.ping_interval_ns
        self.next_due_ns = now_ns + interval
        if now_ns - self.active_ns < interval and self._pinged_ns:
            return
        if self._pings_out + 1 > self.server_info.ping_max:
            self.fail("Stale Connection", STALE)
            return
        self._pings_out += 1
        self._pinged_ns = now_ns
        self.write(PING)

    def lame_duck(self) -> None:
        """Announce lame duck mode, so that the client connects elsewhere."""
        if self._connected and self.options.protocol >= 1:
            self.write(self.server_info.format_info(self.client_id, self.host, ldm=True))

    def log_in_again(self) -> None:
        """Check the client's credentials and subscriptions again, after the settings have changed."""
        if self.closing is not None:
            return
        login = self.accounts.login(self.options, self.nonce, self.kind)
        if isinstance(login, PendingCheck):
            login.start(Waiter(self.log_in_again, self._is_open))
            return
        if login is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return
        self._enter(login)
        for each in list(self.subscriptions.values()):
            refusal = self.permissions.refusal(each.pattern, each.queue)
            if refusal:
                login.account.router.unsubscribe_client(each)
                self.send_error(refusal, connection_log.describe_removed_subscription(each.pattern, each.sid))

    def fail(self, text: str, reason: str, log_text: str = "") -> None:
        """Send an error and close the connection; `log_text` is the log's text if it differs."""
        connection_log.log_failure(self, log_text or text, reason)
        self.write(format_err(text))
        self.close(reason)

    def _refuse(self, log_text: str, reason: str) -> None:
        """Close the connection without an error to the client."""
        connection_log.log_failure(self, log_text, reason)
        self.close(reason)

    def close(self, reason: str = CLIENT_CLOSED) -> None:
        """End every subscription; `out` may still be written. Idempotent."""
        super().close(reason)
        if self.router is not None:
            self.router.leave(self)

    # Called by the router

    @property
    def takes_everything(self) -> bool:
        """Tell whether messages may be queued without a check."""
        return self.echo and self.headers and self.permissions.denied is None and self.permissions.responses is None

    # Frames of the client

    def _take(self, frames: FrameBatch) -> None:
        """Apply frames, as many as fit into a time slice; the others wait for `resume`."""
        began_s = thread_time()
        start, end = 0, len(frames)
        most = SLOW_PER_RUN if any(mark in frames.data for mark in _SLOW_REQUEST_MARKS) else end
        controls = iter(frames.control_numbers())
        control = next(controls, end)
        while start < end:
            if start < control:
                stop = min(control, start + self._run_length(frames, start, most))
                self._publish(frames.part(start, stop) if stop - start < end else frames)
                start = stop
            else:
                self._control(frames[start])
                start += 1
                control = next(controls, end)
            if self.closing is not None:
                return
            if self._held_input is not None:
                self._deferred_frames = frames.part(start, end)
                return
            if start < end and (start < control or not start % CONTROLS_PER_LOOK) and self._is_spent(began_s):
                self._defer(frames.part(start, end))
                return
        if frames.problem is not None and self.closing is None:
            self._fail_on_violation(frames.problem)

    def _run_length(self, frames: FrameBatch, start: int, most: int) -> int:
        """Return the length of the next run, at most `most`: shorter where each message has many receivers."""
        if self.on_deferred is None or self.router is None:
            return len(frames)
        # A sample may miss subjects seen before; the estimate decays when subscribers leave.
        self._fan_out = max(1, self._fan_out // 2, self.router.fan_out(frames, start))
        return max(1, min(most, DELIVERIES_PER_RUN // self._fan_out))

    def _is_spent(self, began_s: float) -> bool:
        return self.on_deferred is not None and thread_time() - began_s > SLICE_S

    def _defer(self, rest: FrameBatch) -> None:
        self._held_input, self._deferred_frames = [], rest
        self.is_deferred = True
        if self.on_deferred is not None:
            self.on_deferred()

    def resume(self) -> None:
        """Apply the deferred frames and the held input."""
        self.is_deferred = False
        held, self._held_input = self._held_input, None
        rest, self._deferred_frames = self._deferred_frames, FrameBatch.empty()
        if self.closing is None:
            self._take(rest)
        for data in held or ():
            self.feed(data)

    def _control(self, frame: Frame) -> None:
        router = self.router
        if self.tracer is not None and (router is not None or frame.op is Op.CONNECT):
            self.tracer.received(frame)
        if frame.op is Op.CONNECT:
            self._connect(bytes(frame.payload))
            return
        if router is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return
        match frame.op:
            case Op.PING:
                self._ping()
            case Op.PONG:
                self._pings_out = 0
                self.rtt_ns = self.active_ns - self._pinged_ns
            case Op.SUB:
                self._subscribe(frame, router)
            case Op.UNSUB:
                self._unsubscribe(frame, router)
            case Op.ERR:
                self._refuse(f"Client Error {connection_log.quoted(bytes(frame.payload))}", PARSE_ERROR)
            case _:
                pass  # a server ignores INFO and +OK

    def _connect(self, text: bytes) -> None:
        options = parse_connect(text, self.options)
        if options is None:
            self._refuse("CONNECT is not valid JSON", PROTOCOL_VIOLATION)
            return
        self.options = options
        self._log_in()

    def _log_in(self) -> bool:
        """Log the client in, or close the connection; return False if a background check is pending."""
        options = self.options
        login = self.accounts.login(options, self.nonce, self.kind)
        if isinstance(login, PendingCheck):
            self._held_input = []
            login.start(Waiter(self._resume_after_login, self._is_open))
            return False
        if login is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return True
        self.label = connection_log.connect_label(options, login.account.name, login.user)
        if options.account or options.new_account:  # the server assigns accounts
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return True
        if login.account.is_full_for(self):
            self.fail("maximum account active connections exceeded", ACCOUNT_CONNECTIONS)
        elif not 0 <= options.protocol <= PROTOCOL_MAX:
            self.fail("invalid client protocol", BAD_PROTOCOL_VERSION)
        elif options.no_responders and not options.headers:
            self.fail("no responders requires headers support", NEEDS_HEADERS)
        else:
            self._enter(login)
            self._connected = True
            self._greets_again = options.protocol >= 1
            self.send_ok()
        return True

    def _hold(self, data: bytes) -> None:
        if self._held_input is not None:
            self._held_input.append(data)
            if sum(map(len, self._held_input)) > HELD_BYTES_MAX:
                self.close(PROTOCOL_VIOLATION)

    def _resume_after_login(self) -> None:
        """Continue after CONNECT: the password check is done."""
        held, rest = self._held_input, self._deferred_frames
        self._held_input = None
        if self.closing is None and not self._log_in():  # the check was skipped
            self._held_input, self._deferred_frames = held, rest
            return
        self._held_input = held
        self.resume()

    def _is_open(self) -> bool:
        return self.closing is None

    def _enter(self, login: "Login") -> None:
        options, router = self.options, login.account.router
        if self.router is None:
            self.next_due_ns = self.clock.now_ns() + min(FIRST_PING_NS, self.server_info.ping_interval_ns)
        if self.router is not None and self.router is not router:
            self.router.leave(self)
        self.router = router
        router.join(self)
        self.permissions = ClientPermissions(login.permissions)
        limits = login.account.settings
        self.payload_max = limits.max_payload
        self.trace_dest, self.trace_sampling = limits.trace_dest.encode(), limits.trace_sampling
        self._subscriptions_max = min(
            each or sys.maxsize for each in (self.server_info.max_subscriptions, limits.max_subscriptions)
        )
        self.echo, self.headers, self.no_responders = options.echo, options.headers, options.no_responders
        if self.subscriptions:
            self.permissions.note_subscribed((each.pattern, each.queue) for each in self.subscriptions.values())
            router.renew()
        self.origin = Origin(
            self.client_id,
            login.account.name,
            user=login.user,
            name=options.name,
            host=self.host,
            language=options.lang,
            version=options.version,
            start_ns=self.started_ns,
        )

    def _ping(self) -> None:
        self.write(PONG)
        if self._greets_again:
            self._greets_again = False
            more = {"connect_info": True, "remote_account": self.origin.account}
            self.write(
                self.server_info.format_info(
                    self.client_id, self.host, auth_required=self.accounts.needs_credentials, **more
                )
            )

    def _subscribe(self, frame: Frame, router: "Router") -> None:
        subject, queue = frame.subject, frame.reply
        refusal = self.permissions.refusal(subject, queue)
        tokens_most = self.server_info.max_subscription_tokens
        if refusal:
            self.send_error(refusal, connection_log.describe_refused_subscription(frame))
        elif tokens_most is not None and subject.count(b".") >= tokens_most:
            refusal = f'Permissions Violation for Subscription to "{shown(subject)}", too many tokens'
            self.send_error(refusal, connection_log.describe_refused_subscription(frame, " Too Many Tokens"))
        elif len(self.subscriptions) >= self._subscriptions_max:
            self.send_error("maximum subscriptions exceeded", "maximum subscriptions exceeded")
        elif not is_pattern(subject):
            self.send_error("Invalid Subject")
        else:
            if frame.sid not in self.subscriptions:
                self._add(Subscription(self, subject, queue, frame.sid), router)
            self.send_ok()

    def _add(self, subscription: Subscription, router: "Router") -> None:
        self.subscriptions[subscription.sid] = subscription
        if self.permissions.note_subscribed([(subscription.pattern, subscription.queue)]):
            router.renew()
        router.subscribe_client(subscription)

    def _unsubscribe(self, frame: Frame, router: "Router") -> None:
        subscription = self.subscriptions.get(frame.sid)
        if subscription is not None:
            most = _limit(bytes(frame.payload))
            router.limit_client(subscription, most - subscription.delivered if most else 0)
        self.send_ok()

    def _publish(self, frames: FrameBatch) -> None:
        if self.router is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
        elif self.tracer is not None:
            publish_traced(frames, self, self.router, self.tracer)
        else:
            publish(frames, self, self.router)

    # Helpers

    def send_ok(self) -> None:
        """Send +OK to a verbose client."""
        if self.options.verbose:
            self.write(OK)

    def send_error(self, text: str, log_text: str = "") -> None:
        """Send an error; `log_text`, if any, is logged."""
        if log_text:
            connection_log.log_violation(self, log_text)
        self.write(format_err(text))

    def _fail_on_violation(self, problem: ProtocolViolation) -> None:
        log_text = connection_log.describe_violation(problem)
        if self.router is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
        elif problem.server_text:
            self.fail(problem.server_text, REASONS.get(type(problem), PROTOCOL_VIOLATION), log_text)
        else:
            self._refuse(log_text, PROTOCOL_VIOLATION)


def _limit(digits: bytes) -> int:
    """Return after how many messages an UNSUB ends the subscription, 0 for now."""
    return int(digits) if digits.isdigit() and len(digits) <= LIMIT_DIGITS_MAX else 0
