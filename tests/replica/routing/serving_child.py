"""A node with an HTTP application inside: `python -m tests.replica.routing.serving_child FOLDER NAME KIND LEASE`.

The kind is `asgi` or `wsgi`. A `long` lease does not end by itself, however long the machine pauses. `POST /NUMBER`
inserts a row, `GET /` returns all of them, and `GET /leader` the address of the leader as this node knows it. The
process prints its address, then its roles. A line on stdin hands over; its end ends the node.
"""

import asyncio
import socket
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import apsw
import uvicorn
from werkzeug.serving import make_server

from strandline.events import Event
from strandline.lease import LeaseTiming
from strandline.objects import open_objects
from strandline.replica import Node, RoleChanged
from strandline.replica import node as node_module
from strandline.replica.routing import AsgiRouting, WsgiRouting
from tests.replica.node_child import MAINTENANCE, TIMING, say
from tests.replica.routing.fakes import PATIENT
from tests.waiting import PATIENCE_S

TIMINGS = {"long": LeaseTiming(ttl_s=600.0, renew_s=150.0, margin_s=1.0, poll_s=0.05), "short": TIMING}
WORK_S = 0.01
"""How long the application works before and after its transaction: a hand-over begins in the middle of requests."""


def answer(node: Node, method: str, target: str) -> bytes:
    """Do what a request asks for, with a connection of its own."""
    if target == "/leader":
        return (node.leader_address() or "").encode()
    with closing(apsw.Connection(str(node.path))) as connection:
        connection.set_busy_timeout(int(PATIENCE_S * 1000))
        if method == "POST":
            time.sleep(WORK_S)
            connection.execute("INSERT INTO t VALUES (?)", [int(target[1:])])
            time.sleep(WORK_S)
            return b"done"
        return " ".join(str(number) for (number,) in connection.execute("SELECT number FROM t")).encode()


def serve_asgi(node: Node, listener: socket.socket, ended: threading.Event) -> None:
    """Serve with uvicorn."""

    async def app(scope: Any, _: Any, send: Any) -> None:  # noqa: ANN401 - ASGI
        body = await asyncio.to_thread(answer, node, scope["method"], scope["path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def main() -> None:
        config = uvicorn.Config(AsgiRouting(app, node, limits=PATIENT), log_level="critical", lifespan="off", ws="none")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listener]))
        await asyncio.to_thread(ended.wait)
        server.should_exit = True
        await serving

    asyncio.run(main())


def serve_wsgi(node: Node, listener: socket.socket, ended: threading.Event) -> None:
    """Serve with werkzeug."""

    def app(environ: Any, start_response: Any) -> list[bytes]:  # noqa: ANN401 - WSGI
        body = answer(node, environ["REQUEST_METHOD"], environ["PATH_INFO"])
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    routed = WsgiRouting(app, node, limits=PATIENT)
    server = make_server("127.0.0.1", 0, routed, threaded=True, fd=listener.fileno())
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    serving.start()
    ended.wait()
    server.shutdown()
    serving.join()
    routed.close()


def tell(event: Event) -> None:
    """Print roles."""
    if isinstance(event, RoleChanged):
        say("role", event.role.value, event.epoch)


def main(folder: Path, name: str, kind: str, lease: str) -> None:
    """Run a node and its application until stdin ends."""
    vars(node_module).update(WRITES_S=PATIENCE_S, DRAIN_S=PATIENCE_S)
    listener = socket.create_server(("127.0.0.1", 0))
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    say("address", address)
    store = open_objects(f"file://{folder}/replica")
    node = Node(
        folder / f"{name}.db",
        store,
        name,
        address=address,
        timing=TIMINGS[lease],
        follow_every_s=0.05,
        maintenance=MAINTENANCE,
    )
    node.events.subscribe(tell)
    ended = threading.Event()
    with node:
        serving = threading.Thread(target=serve_asgi if kind == "asgi" else serve_wsgi, args=(node, listener, ended))
        serving.start()
        for _ in sys.stdin:
            node.hand_over()
        ended.set()
        serving.join()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4])
