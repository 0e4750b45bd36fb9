"""Applications behind the middlewares: they say their name and what they were sent."""

import socket
import threading
from http.client import HTTPResponse
from typing import Any

import flask
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from tests.waiting import PATIENCE_S


def starlette_app(name: str) -> Starlette:
    """Return an application that says its name and what it was sent."""

    async def answer(request: Request) -> Response:
        body = await request.body()
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        status = 409 if path == "/conflict" else 200
        client = request.headers.get("x-forwarded-for", "")
        return PlainTextResponse(f"{name} {request.method} {path} {len(body)} {client}".rstrip(), status)

    methods = ["GET", "POST", "PUT", "DELETE"]
    routes = [Route("/echo", Echo(), methods=methods), Route("/{path:path}", answer, methods=methods)]
    return Starlette(routes=routes)


class Echo:
    """Answers with the body, piece by piece as it comes."""

    async def __call__(self, _: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        await send({"type": "http.response.start", "status": 200, "headers": []})
        more = True
        while more:
            message = await receive()
            more = message.get("more_body", False)
            await send({"type": "http.response.body", "body": message.get("body", b""), "more_body": more})


def flask_app(name: str) -> flask.Flask:
    """Return the same, for Flask."""
    app = flask.Flask(name)

    @app.route("/", defaults={"path": ""}, methods=["GET", "POST", "PUT", "DELETE"])
    @app.route("/<path:path>", methods=["GET", "POST", "PUT", "DELETE"])
    def answer(path: str) -> flask.Response:
        request = flask.request
        if path == "echo":
            stream = request.stream  # the request itself is gone when the answer is made
            return flask.Response(iter(lambda: stream.read(65536), b""))
        shown = "/" + path + (f"?{request.query_string.decode()}" if request.query_string else "")
        client = request.headers.get("X-Forwarded-For", "")
        size = len(request.get_data())
        status = 409 if shown == "/conflict" else 200
        return flask.Response(f"{name} {request.method} {shown} {size} {client}".rstrip(), status)

    return app


def echoed(address: str, framing: str, body: bytes) -> bytes:
    """Send a body while its echo is read."""
    host, _, port = address.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        head = f"POST /echo HTTP/1.1\r\nHost: x\r\n{framing}\r\n\r\n".encode()
        sending = threading.Thread(target=connection.sendall, args=(head + body,))
        sending.start()
        answer = HTTPResponse(connection, method="POST")
        answer.begin()
        received = answer.read()
        sending.join()
        return received
