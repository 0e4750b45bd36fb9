"""The table of monitoring paths, and the form of their pages."""

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
from strandline.broker.monitoring.query import BadQuery, Query

if TYPE_CHECKING:
    from strandline.broker.monitoring.http import MonitorCounters
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
    """An HTTP response."""

    body: bytes
    status: int = 200
    kind: str = JSON


Answer = Callable[["Server", "MonitorCounters", Query], Page]


def write_fields(fields: Fields, *, indent: int | None = 2) -> bytes:
    """Return JSON as nats-server writes it, indented or (without an indent) compact."""
    separators = (",", ": ") if indent else (",", ":")
    text = json.dumps(fields, indent=indent, separators=separators, ensure_ascii=False)
    for mark, escape in HTML_MARKS.items():
        text = text.replace(mark, escape)
    return text.encode()


def _fields(answer: Callable[["Server", "MonitorCounters", Query], Fields]) -> Answer:
    return lambda server, counters, query: Page(write_fields(answer(server, counters, query)))


def _health(server: "Server", counters: "MonitorCounters", query: Query) -> Page:
    del counters
    status, fields = healthz(server, query)
    return Page(write_fields(fields, indent=None), status)


def _about(server: "Server") -> Fields:
    now = format_time(server.clock.now_ns())
    return {"server_id": server.server_id, "server_name": server.server_name, "now": now}


def _no_peers(**more: Sequence[object] | dict[str, object] | int) -> Answer:
    """Return a page about other servers of a cluster, of which there are none."""

    def fields(server: "Server", counters: "MonitorCounters", query: Query) -> Fields:
        del counters, query
        about = _about(server)
        del about["server_name"]
        return {**about, **more}

    return _fields(fields)


def _stacks(server: "Server", counters: "MonitorCounters", query: Query) -> Page:
    """Show the stack of every thread of the process."""
    del server, counters, query
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001 - the only way to other threads' stacks
    stacks = [
        f"thread {number} [{names.get(number, 'unknown')}]:\n{''.join(traceback.format_stack(frame))}"
        for number, frame in frames.items()
    ]
    return Page("\n".join(stacks).encode())


def _variables(server: "Server", counters: "MonitorCounters", query: Query) -> Fields:
    """Show the variables of a Go program; arguments are left out, because they may contain a password."""
    del server, counters, query
    size = resident_bytes()
    return {"cmdline": sys.argv[:1], "memstats": {"Alloc": size, "Sys": size}}


def _root(server: "Server", counters: "MonitorCounters", query: Query) -> Page:
    del counters, query
    links = "\n".join(f'<a href="./{path}">{name}</a><br/>' for name, path in LINKS)
    text = f'<!DOCTYPE html>\n<html lang="en"><body>\n<h1>{server.server_id}</h1>\n{links}\n</body></html>\n'
    return Page(text.encode(), kind=HTML)


PAGES: dict[str, Answer] = {
    "/": _root,
    "/varz": _fields(lambda server, counters, _: varz(server, counters)),
    "/connz": _fields(lambda server, counters, query: connz(server, counters.closed, query)),
    "/subsz": _fields(lambda server, _, query: subsz(server, query)),
    "/jsz": _fields(lambda server, _, query: jsz(server, query)),
    "/healthz": _health,
    "/accountz": _fields(lambda server, _, query: accountz(server, query)),
    "/accstatz": _fields(lambda server, _, query: accstatz(server, query)),
    "/routez": _fields(lambda server, _, __: {**_about(server), "num_routes": 0, "routes": []}),
    "/gatewayz": _no_peers(outbound_gateways={}, inbound_gateways={}),
    "/leafz": _no_peers(leafnodes=0, leafs=[]),
    "/raftz": lambda _, __, ___: Page(b"No Raft nodes registered", 404, TEXT),
    "/ipqueuesz": _fields(lambda _, __, ___: {}),
    "/stacksz": _stacks,
    "/debug/vars": _fields(_variables),
}
PAGES["/subscriptionsz"] = PAGES["/subsz"]


def answer(server: "Server", counters: "MonitorCounters", query: Query) -> Page:
    """Return the page of a query."""
    base = server.settings.http_base_path.strip("/")
    path = query.path.removeprefix(f"/{base}") if base else query.path
    found = PAGES.get(path or "/")
    if found is None:
        return Page(b"404 page not found\n", 404, TEXT)
    counters.requests[path or "/"] += 1
    try:
        return found(server, counters, query)
    except BadQuery as error:
        return Page(str(error).encode(), 400, TEXT)
