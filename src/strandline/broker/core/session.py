"""One client's connection as a machine of states: bytes in, bytes out, and no socket.

Invariants: frames take effect in their order, runs of messages together. Once `closing` says why, nothing that comes in
is looked at any more, nothing but what is in `out` goes out, and every subscription has ended. While a slow password is
looked at elsewhere, what comes in is held, and not much of it.
"""

import sys
from collections.abc import Callable
from time import thread_time
from typing import TYPE_CHECKING

from strandline.broker.api.trace_headers import TRACE_DEST
from strandline.broker.core import connection_log
from strandline.broker.core.auth import CheckLater, Waiter
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
from strandline.broker.core.gate import Gate, is_pattern, shown
from strandline.broker.core.outbox import Outbox
from strandline.broker.core.publish import publish, publish_traced
from strandline.broker.core.server_info import ServerFacts, new_nonce
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
    from strandline.broker.settings import Permissions

FIRST_PING_NS = 2_000_000_000
PROTOCOL_MAX = 1
HELD_BYTES_MAX = 1 << 20
SLICE_S = 0.002
"""Processor time after which a client's frames wait until others had their turn."""
CONTROLS_PER_LOOK = 32
"""How many control frames take effect between two looks at the clock."""
DELIVERIES_PER_RUN = 1 << 14
"""How many messages go out at most between two looks."""
DEAR_PER_RUN = 4
"""How many messages go together where some of them may take long by themselves."""
_DEAR = (b"$SYS.REQ.", b"\r\n" + TRACE_DEST)
"""What requests that show pages, and messages that are traced, have in them."""
LIMIT_DIGITS_MAX = 9
"""A limit of an UNSUB with more digits is none, as nats-server has it."""
REASONS: dict[type, str] = {PayloadTooLarge: PAYLOAD_EXCEEDED, LineTooLong: LINE_EXCEEDED}


class Session(Outbox):
    """A client that is connected; `host` and `port` are its own, `kind` is STANDARD or WEBSOCKET."""

    def __init__(
        self,
        client_id: int,
        facts: ServerFacts,
        accounts: "Accounts",
        clock: Clock,
        on_output: Callable[[], None],
        *,
        host: str = "",
        port: int = 0,
        kind: str = "STANDARD",
    ) -> None:
        super().__init__(on_output, facts.max_pending)
        self.client_id = client_id
        self.facts = facts
        self.accounts = accounts
        self.clock = clock
        self.host, self.port, self.kind = host, port, kind
        self.options = ConnectOptions()
        self.subscriptions: dict[bytes, Subscription] = {}
        self.started_ns = self.active_ns = clock.now_ns()
        self.in_msgs = self.in_bytes = self.complaints = 0
        self.label = ""
        """What lines of the log call the client, beside its address, once it is in."""
        self.rtt_ns = 0
        self.tls: tuple[str, str, str] | None = None
        """Subject of the client's certificate, version and cipher, if it came by TLS."""
        self.nonce = new_nonce() if accounts.needs_nonce else ""
        self.router: Router | None = None
        self.gate = Gate()
        self.permissions: Permissions | None = None
        self.origin = Origin(client_id, "", host=host, start_ns=self.started_ns)
        self.echo, self.headers, self.no_responders = True, False, False
        self.trace_dest, self.trace_sampling = b"", 0
        self._parser = FrameParser(Side.CLIENT, facts.wire_limits)
        self._pings_out = 0
        self._pinged_ns = 0
        self._greets_again = False
        self._connected = False
        self.payload_max: int | None = None
        self._subscriptions_max = sys.maxsize
        self._held: list[bytes] | None = None
        self._rest = FrameBatch.empty()
        self._fan_out = 1
        """How many hear a message of this client, as far as is known."""
        self.waits_for_turn = False
        """Frames were put aside, and `go_on` is to be called."""
        self.on_rest: Callable[[], None] | None = None
        """Who calls `go_on` soon when frames were put aside; without one, all take effect at once."""
        self.next_due_ns = self.started_ns + facts.auth_timeout_ns
        login = accounts.before_connect(kind)
        if login is not None:
            self._enter(login)

    # What the server's edge calls

    def greeting(self) -> bytes:
        """Return the INFO that a client is greeted with."""
        return self.facts.info(self.client_id, self.host, nonce=self.nonce, auth_required=self.router is None)

    def feed(self, data: bytes) -> None:
        """Take what the client has sent."""
        if self.closing is not None:
            return
        self.active_ns = self.clock.now_ns()
        if self._held is not None:
            self._hold(data)
            return
        try:
            frames = self._parser.feed(data)
        except ProtocolViolation as problem:
            self._break_off(problem)
            return
        self._take(frames)

    def tick(self, now_ns: int) -> None:
        """Do what is due: end a client that does not say who it is, or does not answer; see `next_due_ns`."""
        if self.closing is not None or now_ns < self.next_due_ns:
            return
        if self.router is None:
            self.fail("Authentication Timeout", AUTH_TIMEOUT)
            return
        connection_log.tell_pinged(self)
        interval = self.facts.ping_interval_ns
        self.next_due_ns = now_ns + interval
        if now_ns - self.active_ns < interval and self._pinged_ns:
            return
        if self._pings_out + 1 > self.facts.ping_max:
            self.fail("Stale Connection", STALE)
            return
        self._pings_out += 1
        self._pinged_ns = now_ns
        self.write(PING)

    def lame_duck(self) -> None:
        """Tell the client that the server will go away, so that it connects elsewhere."""
        if self._connected and self.options.protocol >= 1:
            self.write(self.facts.info(self.client_id, self.host, ldm=True))

    def log_in_again(self) -> None:
        """Look at the client's credentials and subscriptions anew, after the settings have changed."""
        if self.closing is not None:
            return
        login = self.accounts.login(self.options, self.nonce, self.kind)
        if isinstance(login, CheckLater):
            login.start(Waiter(self.log_in_again, self._is_there))
            return
        if login is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return
        self._enter(login)
        for each in list(self.subscriptions.values()):
            refusal = self.gate.refusal(each.pattern, each.queue)
            if refusal:
                login.account.router.unsubscribe_client(each)
                self.complain(refusal, connection_log.removal_told(each.pattern, each.sid))

    def fail(self, text: str, reason: str, telling: str = "") -> None:
        """Tell the client what is wrong, and end the connection; `telling` is what the log says, if not the same."""
        connection_log.tell_failure(self, telling or text, reason)
        self.write(format_err(text))
        self.close(reason)

    def _refuse(self, telling: str, reason: str) -> None:
        """End the connection without a word to the client."""
        connection_log.tell_failure(self, telling, reason)
        self.close(reason)

    def close(self, reason: str = CLIENT_CLOSED) -> None:
        """End every subscription; what is in `out` may still be written. Harmless if it was done before."""
        super().close(reason)
        if self.router is not None:
            self.router.leave(self)

    # What the router calls

    @property
    def takes_everything(self) -> bool:
        """Tell whether messages need no look before they are put into `out`."""
        return self.echo and self.headers and self.gate.denied is None and self.gate.responses is None

    # What the client says

    def _take(self, frames: FrameBatch) -> None:
        """Let frames take effect, as many as fit into a slice of time; the others wait for `go_on`."""
        began_s = thread_time()
        start, end = 0, len(frames)
        most = DEAR_PER_RUN if any(mark in frames.data for mark in _DEAR) else end
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
            if self._held is not None:
                self._rest = frames.part(start, end)
                return
            if start < end and (start < control or not start % CONTROLS_PER_LOOK) and self._is_spent(began_s):
                self._put_aside(frames.part(start, end))
                return
        if frames.problem is not None and self.closing is None:
            self._break_off(frames.problem)

    def _run_length(self, frames: FrameBatch, start: int, most: int) -> int:
        """Return how many messages go together, at most so many: fewer where each is heard by many."""
        if self.on_rest is None or self.router is None:
            return len(frames)
        # A sample may miss what was seen before, and a subject without subscribers is soon forgotten.
        self._fan_out = max(1, self._fan_out // 2, self.router.fan_out(frames, start))
        return max(1, min(most, DELIVERIES_PER_RUN // self._fan_out))

    def _is_spent(self, began_s: float) -> bool:
        return self.on_rest is not None and thread_time() - began_s > SLICE_S

    def _put_aside(self, rest: FrameBatch) -> None:
        self._held, self._rest = [], rest
        self.waits_for_turn = True
        if self.on_rest is not None:
            self.on_rest()

    def go_on(self) -> None:
        """Go on with what was put aside."""
        self.waits_for_turn = False
        held, self._held = self._held, None
        rest, self._rest = self._rest, FrameBatch.empty()
        if self.closing is None:
            self._take(rest)
        for data in held or ():
            self.feed(data)

    def _control(self, frame: Frame) -> None:
        router = self.router
        if self.tracer is not None and (router is not None or frame.op is Op.CONNECT):
            self.tracer.heard(frame)
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
                pass  # INFO and +OK tell a server nothing

    def _connect(self, text: bytes) -> None:
        options = parse_connect(text, self.options)
        if options is None:
            self._refuse("CONNECT cannot be read", PROTOCOL_VIOLATION)
            return
        self.options = options
        self._log_in()

    def _log_in(self) -> bool:
        """Let the client in, or end the connection; return False if the answer has to be waited for."""
        options = self.options
        login = self.accounts.login(options, self.nonce, self.kind)
        if isinstance(login, CheckLater):
            self._held = []
            login.start(Waiter(self._go_on_logged_in, self._is_there))
            return False
        if login is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
            return True
        self.label = connection_log.label_of(options, login.account.name, login.user)
        if options.account or options.new_account:  # the server says which account is whose
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
            self.confirm()
        return True

    def _hold(self, data: bytes) -> None:
        if self._held is not None:
            self._held.append(data)
            if sum(map(len, self._held)) > HELD_BYTES_MAX:
                self.close(PROTOCOL_VIOLATION)

    def _go_on_logged_in(self) -> None:
        """Go on where the client said who it is: the password is known now."""
        held, rest = self._held, self._rest
        self._held = None
        if self.closing is None and not self._log_in():  # it was not looked at after all
            self._held, self._rest = held, rest
            return
        self._held = held
        self.go_on()

    def _is_there(self) -> bool:
        return self.closing is None

    def _enter(self, login: "Login") -> None:
        options, router = self.options, login.account.router
        if self.router is None:
            self.next_due_ns = self.clock.now_ns() + min(FIRST_PING_NS, self.facts.ping_interval_ns)
        if self.router is not None and self.router is not router:
            self.router.leave(self)
        self.router = router
        router.join(self)
        self.gate, self.permissions = Gate(login.permissions), login.permissions
        limits = login.account.settings
        self.payload_max = limits.max_payload
        self.trace_dest, self.trace_sampling = limits.trace_dest.encode(), limits.trace_sampling
        self._subscriptions_max = min(
            each or sys.maxsize for each in (self.facts.max_subscriptions, limits.max_subscriptions)
        )
        self.echo, self.headers, self.no_responders = options.echo, options.headers, options.no_responders
        if self.subscriptions:
            self.gate.hears((each.pattern, each.queue) for each in self.subscriptions.values())
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
                self.facts.info(self.client_id, self.host, auth_required=self.accounts.needs_credentials, **more)
            )

    def _subscribe(self, frame: Frame, router: "Router") -> None:
        subject, queue = frame.subject, frame.reply
        refusal = self.gate.refusal(subject, queue)
        tokens_most = self.facts.max_subscription_tokens
        if refusal:
            self.complain(refusal, connection_log.refusal_told(frame))
        elif tokens_most is not None and subject.count(b".") >= tokens_most:
            refusal = f'Permissions Violation for Subscription to "{shown(subject)}", too many tokens'
            self.complain(refusal, connection_log.refusal_told(frame, " Too Many Tokens"))
        elif len(self.subscriptions) >= self._subscriptions_max:
            self.complain("maximum subscriptions exceeded", "maximum subscriptions exceeded")
        elif not is_pattern(subject):
            self.complain("Invalid Subject")
        else:
            if frame.sid not in self.subscriptions:
                self._add(Subscription(self, subject, queue, frame.sid), router)
            self.confirm()

    def _add(self, subscription: Subscription, router: "Router") -> None:
        self.subscriptions[subscription.sid] = subscription
        if self.gate.hears([(subscription.pattern, subscription.queue)]):
            router.renew()
        router.subscribe_client(subscription)

    def _unsubscribe(self, frame: Frame, router: "Router") -> None:
        subscription = self.subscriptions.get(frame.sid)
        if subscription is not None:
            most = _limit(bytes(frame.payload))
            router.limit_client(subscription, most - subscription.delivered if most else 0)
        self.confirm()

    def _publish(self, frames: FrameBatch) -> None:
        if self.router is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
        elif self.tracer is not None:
            publish_traced(frames, self, self.router, self.tracer)
        else:
            publish(frames, self, self.router)

    # Small things

    def confirm(self) -> None:
        """Say that something was done, to a client that wants to hear it."""
        if self.options.verbose:
            self.write(OK)

    def complain(self, text: str, telling: str = "") -> None:
        """Say that something was not done; `telling` is what the log says, if anything."""
        if telling:
            connection_log.tell_complaint(self, telling)
        self.write(format_err(text))

    def _break_off(self, problem: ProtocolViolation) -> None:
        told = connection_log.problem_told(problem)
        if self.router is None:
            self.fail("Authorization Violation", AUTH_VIOLATION)
        elif problem.server_text:
            self.fail(problem.server_text, REASONS.get(type(problem), PROTOCOL_VIOLATION), told)
        else:
            self._refuse(told, PROTOCOL_VIOLATION)


def _limit(digits: bytes) -> int:
    """Return after how many messages an UNSUB ends a subscription, 0 for at once."""
    return int(digits) if digits.isdigit() and len(digits) <= LIMIT_DIGITS_MAX else 0
