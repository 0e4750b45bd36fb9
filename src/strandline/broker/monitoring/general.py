"""`/varz`, `/accountz` and `/accstatz`: the server, and its accounts."""

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from strandline.broker.api.times import format_time
from strandline.broker.core.server_info import FEATURE_FLAGS, GIT_COMMIT, GO_VERSION, SERVER_VERSION
from strandline.broker.monitoring.connections import format_age, sublist_stats
from strandline.broker.monitoring.jetstream import config_of, stats_of
from strandline.broker.monitoring.query import BadQuery, Query
from strandline.clock import NS_PER_S

if TYPE_CHECKING:
    from strandline.broker.core.accounts import Account
    from strandline.broker.monitoring.http import MonitorCounters
    from strandline.broker.server import Server

Fields = dict[str, Any]
KINDS = ("clients", "routes", "gateways", "leafs")


def varz(server: "Server", counters: "MonitorCounters") -> Fields:
    """Return `/varz`."""
    now_ns = server.clock.now_ns()
    return {
        **_identity(server),
        **_limits(server),
        "cluster": {},
        "gateway": {},
        "leaf": {},
        "mqtt": {},
        "websocket": _websocket(server),
        "jetstream": _jetstream(server),
        "tls_timeout": _number(server.settings.tls.timeout_s) if server.settings.tls else 2,
        "write_deadline": int(server.settings.write_deadline_s * NS_PER_S),
        "start": format_time(server.started_ns),
        "now": format_time(now_ns),
        "uptime": format_age(now_ns - server.started_ns),
        **_process(server, now_ns),
        "connections": server.connection_count,
        "total_connections": server.total_connections,
        "routes": 0,
        "remotes": 0,
        "leafnodes": 0,
        **_traffic(server),
        "slow_consumers": counters.slow,
        "stale_connections": counters.stale,
        "stalled_clients": 0,
        "subscriptions": sum(each.router.subscription_count for each in server.accounts.by_name.values()),
        "http_req_stats": dict(sorted(counters.requests.items())),
        "config_load_time": format_time(server.started_ns),
        "feature_flags": FEATURE_FLAGS,
        "system_account": server.settings.system_account,
        "slow_consumer_stats": dict.fromkeys(KINDS, 0) | {"clients": counters.slow},
        "stale_connection_stats": dict.fromkeys(KINDS, 0) | {"clients": counters.stale},
        "disk_io_wait_stats": dict.fromkeys(("waiters", "waits", "wait_time", "max_wait_time"), 0),
    }


def _identity(server: "Server") -> Fields:
    settings = server.settings
    secured = {"auth_required": server.accounts.needs_credentials, "tls_required": settings.tls is not None}
    return {
        "server_id": server.server_id,
        "server_name": server.server_name,
        "version": SERVER_VERSION,
        "proto": 1,
        "git_commit": GIT_COMMIT,
        "go": GO_VERSION,
        "host": settings.host,
        "port": server.port,
        **{name: True for name, value in secured.items() if value},
    }


def _limits(server: "Server") -> Fields:
    settings = server.settings
    return {
        "max_connections": settings.max_connections or 0,
        **({"max_subscriptions": settings.max_subscriptions} if settings.max_subscriptions else {}),
        "ping_interval": int(settings.ping_interval_s * NS_PER_S),
        "ping_max": settings.ping_max,
        "http_host": settings.http_host or settings.host,
        "http_port": server.http_port or 0,
        "http_base_path": settings.http_base_path,
        "https_port": 0,
        "auth_timeout": _number(settings.auth_timeout_s),
        "max_control_line": settings.max_control_line,
        "max_payload": settings.max_payload,
        "max_pending": settings.max_pending,
    }


def _number(value: float) -> float:
    return int(value) if value.is_integer() else value  # as Go writes it


def _websocket(server: "Server") -> Fields:
    settings = server.settings.websocket
    if settings is None:
        return {}
    return {
        "host": settings.host,
        "port": server.websocket_port,
        "handshake_timeout": int(settings.handshake_timeout_s * NS_PER_S),
        **({"no_tls": True} if settings.tls is None else {}),
        **({"compression": True} if settings.compression else {}),
    }


def _jetstream(server: "Server") -> Fields:
    if server.settings.jetstream is None:
        return {}
    limits = {"default_max_consumers": 1000}
    return {"config": config_of(server), "stats": stats_of(server), "limits": limits}


def _process(server: "Server", now_ns: int) -> Fields:
    age_s = max(0.001, (now_ns - server.started_ns) / NS_PER_S)
    cores = os.cpu_count() or 1
    return {
        "mem": resident_bytes(),
        "cores": cores,
        "gomaxprocs": cores,
        "cpu": min(100 * cores, int(100 * time.process_time() / age_s)),
    }


def resident_bytes() -> int:
    """Return the resident memory of this process; 0 where the system does not report it."""
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    except (OSError, ValueError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _traffic(server: "Server") -> Fields:
    routers = [each.router for each in server.accounts.by_name.values()]
    totals = {
        name: sum(getattr(router, name) for router in routers)
        for name in ("in_msgs", "in_bytes", "out_msgs", "out_bytes")
    }
    return {
        "in_msgs": totals["in_msgs"],
        "in_bytes": totals["in_bytes"],
        "in_client_msgs": totals["in_msgs"],
        "in_client_bytes": totals["in_bytes"],
        "out_msgs": totals["out_msgs"],
        "out_bytes": totals["out_bytes"],
        "out_client_msgs": totals["out_msgs"],
        "out_client_bytes": totals["out_bytes"],
    }


def accountz(server: "Server", query: Query) -> Fields:
    """Return `/accountz`: the names of all accounts, or one account."""
    fields = {
        "server_id": server.server_id,
        "now": format_time(server.clock.now_ns()),
        "system_account": server.settings.system_account,
    }
    name = query.text("acc")
    if not name:
        return {**fields, "accounts": sorted({*server.accounts.by_name, server.settings.system_account})}
    account = server.accounts.by_name.get(name)
    if account is None:
        raise BadQuery(f"Account {name} does not exist")
    return {**fields, "account_detail": _account(server, account)}


def _account(server: "Server", account: "Account") -> Fields:
    return {
        "account_name": account.name,
        "update_time": format_time(server.started_ns),
        "expired": False,
        "complete": True,
        "jetstream_enabled": account.name in server.jetstreams,
        "leafnode_connections": 0,
        "client_connections": len(account.router.sessions),
        "subscriptions": account.router.subscription_count,
        "name_tag": account.name,
        "sublist_stats": sublist_stats(account.router.subscription_count),
    }


def accstatz(server: "Server", query: Query) -> Fields:
    """Return `/accstatz`: the traffic of accounts; unused ones only on request."""
    unused = query.flag("unused")
    rows = [_statistics(each) for each in server.accounts.by_name.values() if unused or each.router.sessions]
    return {
        "server_id": server.server_id,
        "now": format_time(server.clock.now_ns()),
        "account_statz": rows,
    }


def _statistics(account: "Account") -> Fields:
    router = account.router
    nothing = {kind: {"msgs": 0, "bytes": 0} for kind in ("gateways", "routes", "leafs")}
    return {
        "acc": account.name,
        "name": account.name,
        "conns": len(router.sessions),
        "leafnodes": 0,
        "total_conns": len(router.sessions),
        "num_subscriptions": router.subscription_count,
        "sent": {"msgs": router.out_msgs, "bytes": router.out_bytes, **nothing},
        "received": {"msgs": router.in_msgs, "bytes": router.in_bytes, **nothing},
        "slow_consumers": 0,
    }
