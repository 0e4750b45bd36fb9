"""`/jsz` and `/healthz`: the contents and the health of JetStream.

Invariants: counts equal those that clients see. A stream with failed storage or lost messages, or a consumer that is
offline, makes the server unhealthy.
"""

import os
import shutil
from typing import TYPE_CHECKING, Any

from strandline.broker.api.config import Storage
from strandline.broker.api.schema import to_plain
from strandline.broker.api.times import format_time
from strandline.broker.monitoring.query import Query
from strandline.broker.settings import JetStreamSettings
from strandline.broker.streams.registry import loss_problem
from strandline.journal import SYNCED

if TYPE_CHECKING:
    from strandline.broker.jetstream import JetStream
    from strandline.broker.server import Server

Fields = dict[str, Any]
API_LEVEL = 5
SYNC_INTERVAL_NS = 120_000_000_000
DEFAULT_SHARE = 0.75
"""The share of memory and disk that nats-server takes by default."""


def jsz(server: "Server", query: Query) -> Fields:
    """Return `/jsz`."""
    now_ns = server.clock.now_ns()
    wants = {name: query.flag(name) for name in ("accounts", "streams", "consumers", "config")}
    account = query.text("acc")
    offset, limit = query.window
    about = {"server_id": server.server_id, "now": format_time(now_ns)}
    if server.settings.jetstream is None:
        disabled = {"disabled": True, "config": {"max_memory": 0, "max_storage": 0}}
        return {**_use([], level=0), **about, **disabled, **_counts([]), "total": 0}
    accounts = list(server.jetstreams.values())
    fields = {
        **_use(accounts),
        **about,
        "config": config_of(server),
        "limits": {"default_max_consumers": 1000},
        **_counts(accounts),
    }
    if account or any(wants.values()):
        chosen = [each for each in accounts if not account or each.account == account]
        shown = chosen[offset : offset + limit]
        fields["account_details"] = [_account(each, now_ns, wants, server.server_name) for each in shown]
    return {**fields, "total": len(accounts)}


def config_of(server: "Server") -> Fields:
    """Return the configuration of JetStream."""
    settings = server.settings.jetstream or JetStreamSettings()
    memory, storage = settings.max_memory, settings.max_storage
    if memory < 0:
        memory = int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * DEFAULT_SHARE)
    if storage < 0:
        storage = int(shutil.disk_usage(server.store_dir or "/").free * DEFAULT_SHARE)
    return {
        "max_memory": memory,
        "max_storage": storage,
        "store_dir": str(server.store_dir),
        "sync_interval": SYNC_INTERVAL_NS,
        **({"sync_always": True} if server.settings.durability is SYNCED else {}),
        **({"domain": settings.domain} if settings.domain else {}),
        "strict": True,
    }


def stats_of(server: "Server") -> Fields:
    """Return the usage of all accounts."""
    return _use(list(server.jetstreams.values()))


def _use(jetstreams: list["JetStream"], *, level: int = API_LEVEL) -> Fields:
    streams = [stream for each in jetstreams for stream in each.streams.streams.values()]
    used = {kind: sum(each.state().bytes for each in streams if each.config.storage is kind) for kind in Storage}
    reserved = {
        kind: sum(max(0, each.config.max_bytes) for each in streams if each.config.storage is kind) for kind in Storage
    }
    return {
        "memory": used[Storage.MEMORY],
        "storage": used[Storage.FILE],
        "reserved_memory": reserved[Storage.MEMORY],
        "reserved_storage": reserved[Storage.FILE],
        "accounts": len(jetstreams),
        "ha_assets": 0,
        "api": {
            "level": level,
            "total": sum(each.streams.requests for each in jetstreams),
            "errors": sum(each.streams.errors for each in jetstreams),
        },
    }


def _counts(jetstreams: list["JetStream"]) -> Fields:
    states = [stream.state() for each in jetstreams for stream in each.streams.streams.values()]
    return {
        "streams": len(states),
        "consumers": sum(each.streams.consumer_count(name) for each in jetstreams for name in each.streams.streams),
        "messages": sum(state.messages for state in states),
        "bytes": sum(state.bytes for state in states),
    }


def _account(jetstream: "JetStream", now_ns: int, wants: dict[str, bool], leader: str) -> Fields:
    fields: Fields = {"name": jetstream.account, "id": jetstream.account, **_use([jetstream], level=0), "accounts": 0}
    if wants["streams"] or wants["consumers"] or wants["config"]:
        names = sorted(jetstream.streams.streams)
        fields["stream_detail"] = [_stream(jetstream, name, now_ns, wants, leader) for name in names]
    return fields


def _stream(jetstream: "JetStream", name: str, now_ns: int, wants: dict[str, bool], leader: str) -> Fields:
    info = to_plain(jetstream.streams.info(jetstream.streams.streams[name], now_ns))
    fields: Fields = {
        "name": name,
        "created": info["created"],
        "cluster": {"leader": leader},
        **({"config": info["config"]} if wants["config"] else {}),
        "state": info["state"],
        **{part: info[part] for part in ("mirror", "sources") if part in info},
    }
    if wants["consumers"]:
        service = jetstream.consumers
        entries = [service.entry(name, consumer) for consumer in service.shown(name)]
        details = [to_plain(service.info(entry, now_ns, listed=True)) for entry in entries]
        if not wants["config"]:
            details = [{key: value for key, value in each.items() if key != "config"} for each in details]
        fields["consumer_detail"] = details
    return fields


def healthz(server: "Server", query: Query) -> tuple[int, Fields]:
    """Return `/healthz`: an HTTP status, and the reason."""
    only_enabled = query.flag("js-enabled-only") or query.flag("js-enabled")
    only_server = query.flag("js-server-only")
    account, stream, consumer = query.text("account"), query.text("stream"), query.text("consumer")
    for name, above, named in (("stream", "account", account), ("consumer", "stream", stream)):
        if query.text(name) and not named:
            return 400, {"status": "error", "error": f'"{above}" must not be empty when checking {name} health'}
    if server.settings.jetstream is None or only_enabled or only_server:
        return 200, {"status": "ok"}
    if account:
        missing = _missing(server, account, stream, consumer)
        if missing:
            return 404, {"status": "unavailable", "error": missing}
    problems = [_problem(each) for each in server.jetstreams.values() if each.account == account or not account]
    if any(problems):
        return 503, {"status": "unavailable", "error": next(filter(None, problems))}
    return 200, {"status": "ok"}


def _problem(jetstream: "JetStream") -> str:
    """Return the first problem of an account, empty if it is healthy."""
    for name, problem in jetstream.failures.items():
        return f'JetStream stream "{name}" cannot store: {problem}'
    for (stream, name), problem in jetstream.consumers.unreadable.items():
        which = f'consumer "{name}"' if name else "consumers"
        return f'JetStream {which} of stream "{stream}" cannot be served: {problem}'
    for name, each in jetstream.streams.streams.items():
        if len(each.losses.sequences):
            return f'JetStream stream "{name}" is not whole: {loss_problem(each)}'
    return ""


def _missing(server: "Server", account: str, stream: str, consumer: str) -> str:
    found = server.jetstreams.get(account)
    if found is None:
        return f'JetStream account "{account}" not found'
    if stream and stream not in found.streams.streams:
        return f'JetStream stream "{stream}" not found on account "{account}"'
    if consumer and found.consumers.find(stream, consumer) is None:
        return f'JetStream consumer "{consumer}" not found for stream "{stream}" on account "{account}"'
    return ""
