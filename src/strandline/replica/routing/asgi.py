"""An ASGI middleware: reads here, writes to the leader.

    app = AsgiRouting(app, node)

Any ASGI 3 application. WebSockets and lifespan pass through; a WebSocket that writes must be opened at the leader.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import ExitStack
from typing import Any
from urllib.parse import quote
from weakref import WeakKeyDictionary

from strandline.errors import StrandlineError, Unavailable
from strandline.replica.roles import ReplicaNode
from strandline.replica.routing.answers import PlainAnswer
from strandline.replica.routing.body import RequestBody
from strandline.replica.routing.forwarder import PAUSE_S, Forwarder, Place
from strandline.replica.routing.headers import Peer, get_header
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.node_routing import ERRORS_FROM, NodeLocator, NodeRouting, RoutedRequest
from strandline.replica.routing.rules import Decision, Kind, RoutingRules
from strandline.replica.routing.upstream import CHUNK_BYTES, Answer, ClientFailed

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Scope, Receive, Send], Awaitable[None]]


class AsgiRouting:
    """Serves reads with the application, and writes too if this node leads; forwards other writes to the leader."""

    def __init__(
        self,
        app: AsgiApp,
        node: ReplicaNode,
        *,
        rules: RoutingRules | None = None,
        limits: RoutingLimits | None = None,
        durable: bool = True,
    ) -> None:
        self._app = app
        self._routing = NodeRouting(node, rules or RoutingRules(), limits or RoutingLimits(), durable)
        self._loops: WeakKeyDictionary[asyncio.AbstractEventLoop, _LoopState] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve, forward or hold one request."""
        if scope["type"] == "lifespan":
            await self._lifespan(scope, receive, send)
            return
        parsed = self._parse(scope) if scope["type"] == "http" else None
        if parsed is None:
            await self._app(scope, receive, send)
            return
        if isinstance(parsed, PlainAnswer):
            await _send_plain(parsed, send)
            return
        decision = await self._routing.place(parsed)
        while decision is Decision.SERVE:
            if await self._serve(parsed, scope, receive, send):
                return
            await asyncio.sleep(PAUSE_S)
            decision = await self._routing.place(parsed)
        refusal = self._routing.refusal(decision, parsed)
        if refusal is not None:
            await _send_plain(refusal, send)
            return
        await self._forward(parsed, scope, receive, send)

    def _parse(self, scope: Scope) -> RoutedRequest | PlainAnswer | None:
        target: bytes = scope.get("raw_path") or quote(scope["path"], safe="/:@!$&'()*+,;=~").encode()
        if scope.get("query_string"):
            target += b"?" + scope["query_string"]
        headers = [(name.lower(), value) for name, value in scope["headers"]]
        client = scope.get("client") or ("unknown", 0)
        peer = Peer(client[0], scope.get("scheme", "http"))
        return self._routing.parse(scope["method"], scope["path"], target, headers, peer)

    async def _serve(self, request: RoutedRequest, scope: Scope, receive: Receive, send: Send) -> bool:
        """Serve a request; return False for a write where this node leads no longer, which nothing has read yet."""
        if request.kind is Kind.READ:
            await self._app(scope, receive, send)
            return True
        with ExitStack() as write:
            epoch = write.enter_context(self._routing.node.serving_write())
            if not epoch:
                return False
            sender = _WriteAnswer(self._routing, self._state().durable, send, epoch, write.close)
            await self._app(scope, receive, sender)
        return True

    async def _forward(self, request: RoutedRequest, scope: Scope, receive: Receive, send: Send) -> None:
        forwarder = self._state().forwarder
        source = _BodySource(receive)
        body = forwarder.body(source.read, await _body_size(request, scope))
        forwarded, locator = (
            self._routing.forward_request(request, body),
            NodeLocator(self._routing, request, source.is_here),
        )
        try:
            while (answer := await forwarder.forward(forwarded, locator)) is Place.HERE:
                if await self._serve(request, scope, _Replay(body, source), send):
                    return
                await asyncio.sleep(PAUSE_S)
            if isinstance(answer, Answer):
                await _stream(answer, body, source, send)
            elif isinstance(answer, PlainAnswer):
                await _send_plain(answer, send)
        except ClientFailed:
            return  # the client has gone
        finally:
            await body.close()
            await source.close()

    async def _lifespan(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self._app(scope, receive, send)
        finally:
            state = self._loops.pop(asyncio.get_running_loop(), None)
            if state is not None:
                await state.forwarder.close()

    def _state(self) -> "_LoopState":
        loop = asyncio.get_running_loop()
        if loop not in self._loops:
            self._loops[loop] = _LoopState(self._routing)
        return self._loops[loop]


class _LoopState:
    def __init__(self, routing: NodeRouting) -> None:
        self.forwarder = Forwarder(routing.limits)
        self.durable = _DurableWaits(routing)


class _DurableWaits:
    """Writes that wait for the store: those that wait when a call begins share it, in one thread."""

    def __init__(self, routing: NodeRouting) -> None:
        self._routing = routing
        self._waiting: dict[int, list[asyncio.Future[int]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, epoch: int) -> int:
        future = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(epoch, []).append(future)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            async with asyncio.timeout(self._routing.limits.durable_s):
                found: int = await future
                return found
        except TimeoutError:
            raise Unavailable("the object store did not take it in time", hint="it may yet") from None

    async def _run(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, {}
            for epoch, futures in batch.items():
                try:
                    txid = await asyncio.to_thread(self._routing.wait_durable, epoch)
                except StrandlineError as error:
                    _settle(futures, error)
                else:
                    _settle(futures, txid)


def _settle(futures: list["asyncio.Future[int]"], result: int | StrandlineError) -> None:
    for future in futures:
        if future.done():
            continue
        if isinstance(result, int):
            future.set_result(result)
        else:
            future.set_exception(result)


class _WriteAnswer:
    """The answer of the application to a write: its head waits for the store, and carries the position."""

    def __init__(
        self, routing: NodeRouting, durable: _DurableWaits, send: Send, epoch: int, settled: Callable[[], None]
    ) -> None:
        self._routing = routing
        self._durable = durable
        self._send = send
        self._epoch = epoch
        self._settled = settled
        self._is_replaced = False

    async def __call__(self, message: Message) -> None:
        if self._is_replaced:
            return
        if message["type"] == "http.response.start" and message["status"] < ERRORS_FROM:
            added = await self._position()
            self._settled()
            if isinstance(added, PlainAnswer):
                self._is_replaced = True
                await _send_plain(added, self._send)
                return
            message = {**message, "headers": [*message.get("headers", []), *added]}
        await self._send(message)

    async def _position(self) -> list[tuple[bytes, bytes]] | PlainAnswer:
        if not self._routing.durable:
            return self._routing.position_headers(None)
        try:
            return self._routing.durable_headers(await self._durable.wait(self._epoch))
        except StrandlineError as error:
            return self._routing.durable_headers(error)


class _BodySource:
    """The body of a request, as the server hands it out."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ahead: deque[Message] = deque()
        self._ahead_bytes = 0
        self._pending: asyncio.Task[Message] | None = None
        self._is_gone = False
        self.is_ended = False

    async def read(self) -> bytes:
        while not self.is_ended:
            message = await self.message()
            if message["type"] == "http.disconnect":
                raise ClientFailed("the client went away")
            self.is_ended = not message.get("more_body", False)
            chunk: bytes = message.get("body", b"")
            if chunk:
                return chunk
        return b""

    async def message(self) -> Message:
        """Return the next message of the server."""
        if self._ahead:
            message = self._ahead.popleft()
            self._ahead_bytes -= len(message.get("body", b""))
            return message
        pending = self._pending or self._begin()
        message = await asyncio.shield(pending)  # a sender that is cancelled leaves it for the next one
        self._pending = None
        return message

    def is_here(self) -> bool:
        """Return whether the client waits, as far as a few messages ahead tell: a server says it after the body."""
        if self._pending is not None and self._pending.done() and not self._is_gone:
            message, self._pending = self._pending.result(), None
            self._is_gone = message["type"] == "http.disconnect"
            self._ahead.append(message)
            self._ahead_bytes += len(message.get("body", b""))
        if self._pending is None and not self._is_gone and self._ahead_bytes < CHUNK_BYTES:
            self._begin()
        return not self._is_gone

    async def disconnected(self) -> None:
        """Return when the client is gone, once its request is whole."""
        while (await self.message())["type"] != "http.disconnect":
            pass

    async def close(self) -> None:
        """Wait for no message."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)

    def _begin(self) -> "asyncio.Task[Message]":
        self._pending = asyncio.ensure_future(self._receive())
        return self._pending


class _Replay:
    """The body of a request that was to be forwarded, for the application of this node."""

    def __init__(self, body: RequestBody, source: _BodySource) -> None:
        self._chunks = body.chunks()
        self._source = source
        self._is_ended = False

    async def __call__(self) -> Message:
        if self._is_ended:
            return await self._source.message()
        async for chunk in self._chunks:
            return {"type": "http.request", "body": chunk, "more_body": True}
        self._is_ended = True
        return {"type": "http.request", "body": b"", "more_body": False}


async def _body_size(request: RoutedRequest, scope: Scope) -> int | None:
    length = get_header(request.headers, b"content-length")
    if length is not None:
        return int(length)
    is_bare = scope.get("http_version", "1.1").startswith("1") or request.method in ("GET", "HEAD")
    return 0 if is_bare and get_header(request.headers, b"transfer-encoding") is None else None


async def _stream(answer: Answer, body: RequestBody, source: _BodySource, send: Send) -> None:
    """Send an answer as it comes; end it where the client goes away."""

    async def copy() -> None:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        async for chunk in answer.body:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    tasks = [asyncio.create_task(copy())]
    if source.is_ended or body.size == 0:
        tasks.append(asyncio.create_task(source.disconnected()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await answer.close()


async def _send_plain(answer: PlainAnswer, send: Send) -> None:
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
    await send({"type": "http.response.body", "body": answer.body})
