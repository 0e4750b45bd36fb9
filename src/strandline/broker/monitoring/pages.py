"""Which path is answered by whom, and how an answer is written."""

import json
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.broker.api.times import format_time
from strandline.broker.monitoring.connections import connz, subsz
from strandline.broker.monitoring.general import accountz, accstatz, resident_bytes, varz
from strandline.broker.monitoring.jetstream import healthz, jsz
from strandline.broker.monitoring.query import Asked, BadQuestion

if TYPE_CHECKING:
    from strandline.broker.monitoring.http import Counted
    from strandline.broker.server import Server

Fields = dict[str, Any]
JSON, TEXT, HTML = "application/json", "text/plain; charset=utf-8", "text/html; charset=utf-8"
HTML_MARKS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}
LINKS = (
    ("General", "varz"),
    ("JetStream", "jsz"),
    ("Connections", "connz"),
    ("Accounts", "accountz"),
    ("Account Stats", "accstatz"),
    ("Subscriptions", "subsz"),
    ("Routes", "routez"),
    ("LeafNodes", "leafz"),
    ("Gateways", "gatewayz"),
    ("Raft Groups", "raftz"),
    ("Health Probe", "healthz"),
    ("Expvar", "debug/vars"),
)


@dataclass(frozen=True, slots=True)
class Page:
    """An answer of HTTP."""

    body: bytes
    status: int = 200
    kind: str = JSON


Answer = Callable[["Server", "Counted", Asked], Page]


def write_fields(fields: Fields, *, indent: int | None = 2) -> bytes:
    """Return JSON as nats-server writes it for people; or, without an indent, for programs."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(fields, indent=indent, separators=separators, ensure_ascii=False)
    for mark, escape in HTML_MARKS.items():
        text = text.replace(mark, escape)
    return text.encode()


def _fields(answer: Callable[["Server", "Counted", Asked], Fields]) -> Answer:
    return lambda server, counted, asked: Page(write_fields(answer(server, counted, asked)))


def _health(server: "Server", counted: "Counted", asked: Asked) -> Page:
    del counted
    status, fields = healthz(server, asked)
    return Page(write_fields(fields, indent=None), status)


def _about(server: "Server") -> Fields:
    now = format_time(server.clock.now_ns())
    return {"server_id": server.server_id, "server_name": server.server_name, "now": now}


def _nobody(**more: Sequence[object] | dict[str, object] | int) -> Answer:
    """Return the answer of a page about servers that are not here."""

    def fields(server: "Server", counted: "Counted", asked: Asked) -> Fields:
        del counted, asked
        about = _about(server)
        del about["server_name"]
        return {**about, **more}

    return _fields(fields)


def _stacks(server: "Server", counted: "Counted", asked: Asked) -> Page:
    """Show where every thread of the process is."""
    del server, counted, asked
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - there is no other way to see the stacks of other threads
    stacks = [
        f"thread {number} [{names.get(number, 'unknown')}]:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in frames.items()
    ]
    return Page("\n".join(stacks).encode())


def _variables(server: "Server", counted: "Counted", asked: Asked) -> Fields:
    """Show what Go programs publish there, without arguments: a password may be among them."""
    del server, counted, asked
    size = resident_bytes()
    return {"cmdline": sys.argv[:1], "memstats": {"Alloc": size, "Sys": size}}


def _root(server: "Server", counted: "Counted", asked: Asked) -> Page:
    del counted, asked
    links = "\n".join(f'<a href="./{path}">{name}</a><br/>' for name, path in LINKS)
    text = f'<!DOCTYPE html>\n<html lang="en"><body>\n<h1>{server.server_id}</h1>\n{links}\n</body></html>\n'
    return Page(text.encode(), kind=HTML)


PAGES: dict[str, Answer] = {
    "/": _root,
    "/varz": _fields(lambda server, counted, _: varz(server, counted)),
    "/connz": _fields(lambda server, counted, asked: connz(server, counted.closed, asked)),
    "/subsz": _fields(lambda server, _, asked: subsz(server, asked)),
    "/jsz": _fields(lambda server, _, asked: jsz(server, asked)),
    "/healthz": _health,
    "/accountz": _fields(lambda server, _, asked: accountz(server, asked)),
    "/accstatz": _fields(lambda server, _, asked: accstatz(server, asked)),
    "/routez": _fields(lambda server, _, __: {**_about(server), "num_routes": 0, "routes": []}),
    "/gatewayz": _nobody(outbound_gateways={}, inbound_gateways={}),
    "/leafz": _nobody(leafnodes=0, leafs=[]),
    "/raftz": lambda _, __, ___: Page(b"No Raft nodes registered", 404, TEXT),
    "/ipqueuesz": _fields(lambda _, __, ___: {}),
    "/stacksz": _stacks,
    "/debug/vars": _fields(_variables),
}
PAGES["/subscriptionsz"] = PAGES["/subsz"]


def answer(server: "Server", counted: "Counted", asked: Asked) -> Page:
    """Return the answer to what is asked."""
    base = server.settings.http_base_path.strip("/")
    path = asked.path.removeprefix(f"/{base}") if base else asked.path
    found = PAGES.get(path or "/")
    if found is None:
        return Page(b"404 page not found\n", 404, TEXT)
    counted.requests[path or "/"] += 1
    try:
        return found(server, counted, asked)
    except BadQuestion as error:
        return Page(str(error).encode(), 400, TEXT)
