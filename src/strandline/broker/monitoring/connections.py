"""`/connz` and `/subsz`: open and closed connections, and subscriptions.

Invariants: the latest `max_closed_clients` closed connections are kept as they were at their end, without their
subscriptions.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from strandline.broker.api.times import format_duration, format_time
from strandline.broker.monitoring.query import BadQuery, Query
from strandline.broker.settings import GLOBAL_ACCOUNT
from strandline.clock import NS_PER_S
from strandline.wire import patterns_overlap, subject_matches

if TYPE_CHECKING:
    from strandline.broker.core.session import Session
    from strandline.broker.core.subscriptions import Subscription
    from strandline.broker.server import Server

Fields = dict[str, Any]
STATES = {"": "open", "open": "open", "closed": "closed", "any": "all", "all": "all"}


class Sort(NamedTuple):
    """A sort order of connections: `live` is the key of an open one, `field` that of a described one."""

    live: Callable[["Session"], Any]
    field: str
    largest_first: bool = True


SORTS = {
    "": Sort(lambda session: session.client_id, "cid", largest_first=False),
    "cid": Sort(lambda session: session.client_id, "cid", largest_first=False),
    "start": Sort(lambda session: session.client_id, "cid", largest_first=False),
    "subs": Sort(lambda session: len(session.subscriptions), "subscriptions"),
    "pending": Sort(lambda session: session.unsent_bytes, "pending_bytes"),
    "msgs_to": Sort(lambda session: session.out_msgs, "out_msgs"),
    "msgs_from": Sort(lambda session: session.in_msgs, "in_msgs"),
    "bytes_to": Sort(lambda session: session.out_msg_bytes, "out_bytes"),
    "bytes_from": Sort(lambda session: session.in_bytes, "in_bytes"),
    "last": Sort(lambda session: session.active_ns, "_active_ns"),
    "idle": Sort(lambda session: session.active_ns, "_active_ns", largest_first=False),
    "uptime": Sort(lambda session: session.started_ns, "_start_ns", largest_first=False),
    "rtt": Sort(lambda session: session.rtt_ns, "_rtt_ns"),
    "stop": Sort(lambda _: 0, "_stop_ns"),
    "reason": Sort(lambda _: 0, "_reason", largest_first=False),
}


def describe(session: "Session", now_ns: int) -> Fields:
    """Return a connection as `/connz` shows it; fields with a leading `_` are for sorting and filtering only."""
    options = session.options
    fields: Fields = {
        "_account": session.origin.account,
        "_active_ns": session.active_ns,
        "_start_ns": session.started_ns,
        "_rtt_ns": session.rtt_ns,
        "_stop_ns": 0,
        "_reason": "",
        "_user": session.origin.user,
        "_subs": list(session.subscriptions.values()),
        "cid": session.client_id,
        "kind": "Client",
        "type": "websocket" if session.kind == "WEBSOCKET" else "nats",
        "ip": session.host,
        "port": session.port,
        "start": format_time(session.started_ns),
        "last_activity": format_time(session.active_ns),
        "rtt": format_duration(session.rtt_ns),
        "uptime": format_age(now_ns - session.started_ns),
        "idle": format_age(now_ns - session.active_ns),
        "pending_bytes": session.unsent_bytes,
        "in_msgs": session.in_msgs,
        "out_msgs": session.out_msgs,
        "in_bytes": session.in_bytes,
        "out_bytes": session.out_msg_bytes,
        "subscriptions": len(session.subscriptions),
    }
    named = {"name": options.name, "lang": options.lang, "version": options.version}
    return fields | {name: value for name, value in named.items() if value}


def describe_end(session: "Session", now_ns: int) -> Fields:
    """Return a connection that has just closed."""
    fields = describe(session, now_ns)
    names = list(fields)
    after = names.index("last_activity") + 1
    reason = session.closing or "Client Closed"
    ended = {"stop": format_time(now_ns), "reason": reason, "_stop_ns": now_ns, "_reason": reason, "_subs": []}
    head = {name: fields[name] for name in names[:after]}
    return head | ended | {name: fields[name] for name in names[after:]}


def connz(server: "Server", closed: Iterable[Fields], query: Query) -> Fields:
    """Return `/connz`; only the open connections on the page are described."""
    now_ns = server.clock.now_ns()
    state = STATES.get(query.text("state").lower())
    if state is None:
        raise BadQuery(f"Error decoding state for {query.text('state')}")
    sort = _sorting(query.text("sort"), state)
    subs = "detail" if query.text("subs") == "detail" else "list" * query.flag("subs")
    auth = query.flag("auth")
    offset, limit = query.window
    live = _chosen_live(server, query) if state != "closed" else []
    if state == "open":
        live.sort(key=sort.live, reverse=sort.largest_first)
        total, shown = len(live), [describe(session, now_ns) for session in live[offset : offset + limit]]
    else:
        rows = [describe(session, now_ns) for session in live] + _chosen_closed(closed, query)
        rows.sort(key=lambda row: row[sort.field], reverse=sort.largest_first)
        total, shown = len(rows), rows[offset : offset + limit]
    return {
        "server_id": server.server_id,
        "now": format_time(now_ns),
        "num_connections": len(shown),
        "total": total,
        "offset": offset,
        "limit": limit,
        "connections": [_shown(row, subs, auth=auth) for row in shown]
        if _is_known(server, query.text("acc"))
        else None,
    }


def _is_known(server: "Server", account: str) -> bool:
    return not account or account in server.accounts.by_name


def _sorting(name: str, state: str) -> Sort:
    if name not in SORTS:
        raise BadQuery(f"invalid sorting option: {name}")
    if name in ("stop", "reason") and state == "open":
        raise BadQuery(f"sort by {name} only valid on closed connections")
    return SORTS[name]


def _chosen_live(server: "Server", query: Query) -> list["Session"]:
    client_id, user, account = query.number("cid"), query.text("user"), query.text("acc")
    pattern = query.text("filter_subject")
    return [
        session
        for session in server.sessions
        if (not client_id or session.client_id == client_id)
        and (not user or session.origin.user == user)
        and (not account or session.origin.account == account)
        and (not pattern or _listens(session, pattern))
    ]


def _listens(session: "Session", pattern: str) -> bool:
    return any(patterns_overlap(pattern, _text(each.pattern)) for each in session.subscriptions.values())


def _chosen_closed(rows: Iterable[Fields], query: Query) -> list[Fields]:
    client_id, user, account = query.number("cid"), query.text("user"), query.text("acc")
    return [
        row
        for row in rows
        if (not client_id or row["cid"] == client_id)
        and (not user or row["_user"] == user)
        and (not account or row["_account"] == account)
        and not query.text("filter_subject")
    ]


def _details_of(row: Fields) -> list[Fields]:
    return [_detail(each) for each in row["_subs"]]


def _shown(row: Fields, subs: str, *, auth: bool) -> Fields:
    fields = {name: value for name, value in row.items() if not name.startswith("_")}
    if auth and row["_user"]:
        fields["authorized_user"] = row["_user"]
    if auth and row["_account"] != GLOBAL_ACCOUNT:
        fields["account"] = row["_account"]
    if subs == "detail" and row["_subs"]:
        fields["subscriptions_list_detail"] = _details_of(row)
    elif subs and row["_subs"]:
        fields["subscriptions_list"] = [each["subject"] for each in _details_of(row)]
    return fields | ({"name_tag": row["_account"]} if auth else {})


def _detail(subscription: "Subscription") -> Fields:
    queue = {"qgroup": _text(subscription.queue)} if subscription.queue else {}
    return {
        "subject": _text(subscription.pattern),
        **queue,
        "sid": _text(subscription.sid),
        "msgs": subscription.delivered,
        "cid": subscription.session.client_id,
    }


def subsz(server: "Server", query: Query) -> Fields:
    """Return `/subsz`."""
    test = query.text("test")
    if test and any(token in ("*", ">", "") for token in test.split(".")):
        raise BadQuery(f"invalid test subject, must be valid publish subject: {test}")
    offset, limit = query.window
    details = [
        {"account": account, "account_tag": account, **_detail(subscription)}
        for account, subscription in _subscriptions(server, query.text("acc"))
        if not test or subject_matches(_text(subscription.pattern), test)
    ]
    shown = details[offset : offset + limit] if query.flag("subs") else []
    return {
        "server_id": server.server_id,
        "now": format_time(server.clock.now_ns()),
        **sublist_stats(sum(account.router.subscription_count for account in server.accounts.by_name.values())),
        "total": len(details) if shown else 0,
        "offset": offset,
        "limit": limit,
        **({"subscriptions_list": shown} if shown else {}),
    }


def sublist_stats(count: int) -> Fields:
    """Return nats-server's statistics of subscriptions; most of them are about its own caches."""
    return {
        "num_subscriptions": count,
        "num_cache": 0,
        "num_inserts": count,
        "num_removes": 0,
        "num_matches": 0,
        "cache_hit_rate": 0,
        "max_fanout": 0,
        "avg_fanout": 0,
    }


def _subscriptions(server: "Server", account: str) -> list[tuple[str, "Subscription"]]:
    return [
        (session.origin.account, each)
        for session in server.sessions
        if not account or session.origin.account == account
        for each in session.subscriptions.values()
    ]


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")


def format_age(age_ns: int) -> str:
    """Return an age as nats-server writes it: `1d2h3m4s`."""
    left = max(0, age_ns) // NS_PER_S
    parts: list[str] = []
    for unit, seconds in (("y", 365 * 86_400), ("d", 86_400), ("h", 3_600), ("m", 60)):
        if left >= seconds or parts:
            parts.append(f"{left // seconds}{unit}")
            left %= seconds
    return "".join([*parts, f"{left}s"])
