"""A WSGI middleware: reads here, writes to the leader.

    app = WsgiRouting(app, node)

Any WSGI application (PEP 3333). Requests are forwarded by one thread with an event loop, begun at the first of them in
each process, so that servers which fork may load the application before. The thread of the request reads its body.
"""

import asyncio
import io
import os
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Any, TypeVar
from urllib.parse import quote
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

from strandline.errors import Closed, StrandlineError
from strandline.replica.roles import ReplicaNode
from strandline.replica.routing.answers import PlainAnswer, reason_of
from strandline.replica.routing.body import RequestBody
from strandline.replica.routing.forwarder import PAUSE_S, Forwarder, Place
from strandline.replica.routing.headers import Peer
from strandline.replica.routing.limits import RoutingLimits
from strandline.replica.routing.node_routing import ERRORS_FROM, NodeLocator, NodeRouting, RoutedRequest
from strandline.replica.routing.rules import Decision, Kind, RoutingRules
from strandline.replica.routing.upstream import CHUNK_BYTES, Answer, ClientFailed, end_tasks

Result = TypeVar("Result")
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None] | None


class WsgiRouting:
    """Serves reads with the application, and writes too if this node leads; forwards other writes to the leader."""

    def __init__(
        self,
        app: WSGIApplication,
        node: ReplicaNode,
        *,
        rules: RoutingRules | None = None,
        limits: RoutingLimits | None = None,
        durable: bool = True,
    ) -> None:
        self._app = app
        self._routing = NodeRouting(node, rules or RoutingRules(), limits or RoutingLimits(), durable)
        self._lock = threading.Lock()
        self._worker: _ForwardThread | None = None

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Serve, forward or hold one request."""
        parsed = self._parse(environ)
        if parsed is None:
            return self._app(environ, start_response)
        if isinstance(parsed, PlainAnswer):
            return _plain(parsed, start_response)
        if self._routing.decide(parsed) is Decision.SERVE:
            served = self._serve(parsed, environ, start_response)
            if served is not None:
                return served
        calls = _RequestThread(self._forward_thread(), environ)
        while (decision := calls.run(self._routing.place(parsed))) is Decision.SERVE:
            served = self._serve(parsed, environ, start_response)
            if served is not None:
                return served
            time.sleep(PAUSE_S)
        refusal = self._routing.refusal(decision, parsed)
        if refusal is not None:
            return _plain(refusal, start_response)
        return self._forward(parsed, calls, environ, start_response)

    def close(self) -> None:
        """End the thread that forwards."""
        with self._lock:
            if self._worker is not None:
                self._worker.close()
                self._worker = None

    def _parse(self, environ: WSGIEnvironment) -> RoutedRequest | PlainAnswer | None:
        path = environ.get("SCRIPT_NAME", "") + environ.get("PATH_INFO", "")
        target = environ.get("RAW_URI") or environ.get("REQUEST_URI")
        if not target or not target.startswith("/"):
            query = environ.get("QUERY_STRING", "")
            target = quote(path.encode("latin-1"), safe="/:@!$&'()*+,;=~") + (f"?{query}" if query else "")
        peer = Peer(environ.get("REMOTE_ADDR", "unknown"), environ["wsgi.url_scheme"])
        headers = list(_headers(environ))
        return self._routing.parse(environ["REQUEST_METHOD"], path, target.encode("latin-1"), headers, peer)

    def _serve(
        self, request: RoutedRequest, environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes] | None:
        """Serve a request; None for a write where this node leads no longer, which nothing has read yet."""
        if request.kind is Kind.READ:
            return self._app(environ, start_response)
        with self._routing.node.serving_write() as epoch:
            if not epoch:
                return None
            return _WriteAnswer(self._routing, start_response, epoch).run(self._app, environ)

    def _forward(
        self, request: RoutedRequest, calls: "_RequestThread", environ: WSGIEnvironment, start_response: StartResponse
    ) -> Iterable[bytes]:
        body = calls.worker.forwarder.body(calls.read, _body_size(environ))
        locator, forwarder = NodeLocator(self._routing, request), calls.worker.forwarder
        forwarded = self._routing.forward_request(request, body)
        try:
            while (answer := calls.run(forwarder.forward(forwarded, locator))) is Place.HERE:
                chunks = body.chunks()
                replayed = io.BufferedReader(_ChunkReader(partial(_next_in_loop, calls, chunks)), CHUNK_BYTES)
                served = {**environ, "wsgi.input": replayed, "wsgi.input_terminated": True}
                served_body = self._serve(request, served, start_response)
                if served_body is not None:
                    return _Closing(served_body, lambda: calls.end(body.close()))
                time.sleep(PAUSE_S)
        except BaseException:
            calls.end(body.close())
            raise
        if isinstance(answer, Answer):
            start_response(f"{answer.status} {reason_of(answer.status)}", _native(answer.headers))
            return _ForwardedBody(calls, answer, body)
        calls.end(body.close())
        assert isinstance(answer, PlainAnswer)  # noqa: S101 - the place is another
        return _plain(answer, start_response)

    def _forward_thread(self) -> "_ForwardThread":
        with self._lock:
            if self._worker is None or self._worker.pid != os.getpid():
                self._worker = _ForwardThread(self._routing)
            return self._worker


class _ForwardThread:
    """The thread that forwards, with its event loop."""

    def __init__(self, routing: NodeRouting) -> None:
        self.pid = os.getpid()
        self.forwarder = Forwarder(routing.limits)
        self.loop = asyncio.new_event_loop()
        self._lock = threading.Lock()
        self._is_ending = False
        self._thread = threading.Thread(target=self._run, name="strandline-forwarder", daemon=True)
        self._thread.start()

    def begin(self, coroutine: Coroutine[Any, Any, Result]) -> Future[Result]:
        """Begin a coroutine in the loop; `Closed` after `close`, which cancels those that were begun before."""
        with self._lock:
            if self._is_ending:
                coroutine.close()
                raise Closed("the routing")
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop)

    def settle(self, call: "asyncio.Future[bytes]", result: bytes | ClientFailed) -> None:
        """Give a coroutine what it waits for, unless the loop has ended."""
        with self._lock:
            if not self._is_ending:
                self.loop.call_soon_threadsafe(_settle, call, result)

    def close(self) -> None:
        with self._lock:
            self._is_ending = True
            self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()

    def _run(self) -> None:
        self.loop.run_forever()
        self.loop.run_until_complete(self.forwarder.close())
        self.loop.run_until_complete(end_tasks())
        self.loop.run_until_complete(self.loop.shutdown_default_executor())
        self.loop.close()


class _RequestThread:
    """The thread of a request: it waits for what the loop does, and reads the body when the loop asks for it."""

    def __init__(self, worker: _ForwardThread, environ: WSGIEnvironment) -> None:
        self.worker = worker
        self._input = environ["wsgi.input"]
        self._remaining = _body_size(environ)
        self._calls: queue.SimpleQueue[asyncio.Future[bytes] | None] = queue.SimpleQueue()

    def run(self, coroutine: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine in the loop."""
        future = self.worker.begin(coroutine)
        future.add_done_callback(lambda _: self._calls.put(None))
        while (call := self._calls.get()) is not None:
            try:
                result: bytes | ClientFailed = self._read()
            except Exception as error:  # noqa: BLE001 - the server's own, of any class
                result = ClientFailed(str(error))
            self.worker.settle(call, result)
        return future.result()

    def end(self, *coroutines: Coroutine[Any, Any, None]) -> None:
        """Run what ends a request; where the loop has ended, that has ended all of them."""
        for coroutine in coroutines:
            with suppress(Closed, CancelledError):
                self.run(coroutine)

    async def read(self) -> bytes:
        """Return the next chunk of the body; called in the loop."""
        future = self.worker.loop.create_future()
        self._calls.put(future)
        chunk: bytes = await future
        return chunk

    def _read(self) -> bytes:
        wanted = CHUNK_BYTES if self._remaining is None else min(CHUNK_BYTES, self._remaining)
        chunk: bytes = self._input.read(wanted) if wanted else b""
        if self._remaining is not None:
            if wanted and not chunk:
                raise ValueError("the client went away within its body")
            self._remaining -= len(chunk)
        return chunk


def _settle(call: "asyncio.Future[bytes]", result: bytes | ClientFailed) -> None:
    if call.done():
        return
    if isinstance(result, ClientFailed):
        call.set_exception(result)
    else:
        call.set_result(result)


class _ForwardedBody:
    """The body of an answer of the leader."""

    def __init__(self, calls: _RequestThread, answer: Answer, body: RequestBody) -> None:
        self._calls = calls
        self._answer = answer
        self._body = body

    def __iter__(self) -> Iterator[bytes]:
        while chunk := self._calls.run(_next_chunk(self._answer.body)):
            yield chunk

    def close(self) -> None:
        """Let go of the leader."""
        self._calls.end(self._answer.close(), self._body.close())


class _Closing:
    """The body of an answer of the application, with one thing more to do at its end."""

    def __init__(self, body: Iterable[bytes], at_end: Callable[[], None]) -> None:
        self._body = body
        self._at_end = at_end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def close(self) -> None:
        """Close the body of the application first."""
        try:
            _close(self._body)
        finally:
            self._at_end()


class _WriteAnswer:
    """The answer of the application to a write: its head waits for the store, and carries the position."""

    def __init__(self, routing: NodeRouting, start_response: StartResponse, epoch: int) -> None:
        self._routing = routing
        self._start_response = start_response
        self._epoch = epoch
        self._head: tuple[str, list[tuple[str, str]], _ExcInfo] | None = None
        self._write: Callable[[bytes], object] | None = None
        self._replaced: PlainAnswer | None = None

    def run(self, app: WSGIApplication, environ: WSGIEnvironment) -> Iterable[bytes]:
        """Call the application; its answer begins with the first bytes of its body."""
        body = app(environ, self._start)
        try:
            chunks = iter(body)
            first = next((chunk for chunk in chunks if chunk), b"")
            self._begin()
        except BaseException:
            _close(body)
            raise
        if self._replaced is not None:
            _close(body)
            return [self._replaced.body]
        return _Closing(_chain(first, chunks), lambda: _close(body))

    def _start(
        self, status: str, headers: list[tuple[str, str]], exc_info: _ExcInfo = None, /
    ) -> Callable[[bytes], object]:
        if self._write is not None:  # the answer has begun: the server raises what the application tells it
            return self._start_response(status, headers, exc_info)
        self._head = (status, headers, exc_info)
        return self._early

    def _early(self, chunk: bytes) -> None:
        """Write a part of the body, as old applications do."""
        self._begin()
        if self._replaced is None and self._write is not None:
            self._write(chunk)

    def _begin(self) -> None:
        if self._write is not None or self._head is None:
            return
        status, headers, exc_info = self._head
        if int(status.split(" ", 1)[0]) < ERRORS_FROM:
            added = self._position()
            if isinstance(added, PlainAnswer):
                self._replaced = added
                status, headers = f"{added.status} {reason_of(added.status)}", _native(added.headers)
            else:
                headers = [*headers, *_native(added)]
        self._write = self._start_response(status, headers, exc_info)

    def _position(self) -> list[tuple[bytes, bytes]] | PlainAnswer:
        if not self._routing.durable:
            return self._routing.position_headers(None)
        try:
            return self._routing.durable_headers(self._routing.wait_durable(self._epoch))
        except StrandlineError as error:
            return self._routing.durable_headers(error)


class _ChunkReader(io.RawIOBase):
    """A body that is read chunk by chunk, as a file."""

    def __init__(self, next_chunk: Callable[[], bytes]) -> None:
        self._next_chunk = next_chunk
        self._left = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - what io hands over
        if not self._left:
            self._left = memoryview(self._next_chunk())
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size


def _next_in_loop(calls: _RequestThread, chunks: AsyncIterator[bytes]) -> bytes:
    return calls.run(_next_chunk(chunks))


async def _next_chunk(chunks: AsyncIterator[bytes]) -> bytes:
    async for chunk in chunks:
        if chunk:
            return chunk
    return b""


def _chain(first: bytes, chunks: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from chunks


def _close(body: object) -> None:
    close = getattr(body, "close", None)
    if close is not None:
        close()


def _plain(answer: PlainAnswer, start_response: StartResponse) -> Iterable[bytes]:
    start_response(f"{answer.status} {reason_of(answer.status)}", _native(answer.headers))
    return [answer.body]


def _native(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[str, str]]:
    return [(name.decode("latin-1").title(), value.decode("latin-1")) for name, value in headers]


def _headers(environ: WSGIEnvironment) -> Iterator[tuple[bytes, bytes]]:
    for key, value in environ.items():
        if key in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            if value:
                yield key.replace("_", "-").lower().encode(), value.encode("latin-1")
        elif key.startswith("HTTP_"):
            yield key[5:].replace("_", "-").lower().encode("latin-1"), value.encode("latin-1")


def _body_size(environ: WSGIEnvironment) -> int | None:
    length = environ.get("CONTENT_LENGTH")
    if length:
        return int(length)
    return None if environ.get("wsgi.input_terminated") and environ.get("HTTP_TRANSFER_ENCODING") else 0
