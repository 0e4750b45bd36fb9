"""Responses on `$SYS.REQ.`: to every client about itself and its account, to the system account about the server.

Invariants: a client sees nothing of other accounts, unless it is in the system account. A response has the fields of
its monitoring page, which is imported with the first request. Requests that nats-server does not answer to an account
have no responders here.
"""

import json
import logging
from typing import TYPE_CHECKING, Any

from strandline.broker.core.message_trace import describe_server
from strandline.broker.routes import Inbound, Origin
from strandline.clock import NS_PER_S

if TYPE_CHECKING:
    from strandline.broker.core.accounts import Account
    from strandline.broker.server import Server
    from strandline.broker.settings import Permissions, Rule

logger = logging.getLogger("strandline.broker")
Fields = dict[str, Any]
PREFIX = "$SYS.REQ."
OWN = {
    "USER.INFO": "USER",
    "ACCOUNT.PING.CONNZ": "CONNZ",
    "SERVER.PING.CONNZ": "CONNZ",
    "ACCOUNT.PING.STATZ": "STATZ",
}
"""Requests that every account may send, and their pages; a page is about the account alone."""
SERVER_PAGES = (
    "VARZ", "SUBSZ", "CONNZ", "ROUTEZ", "GATEWAYZ", "LEAFZ", "ACCOUNTZ", "JSZ", "HEALTHZ", "EXPVARZ", "IPQUEUESZ",
    "RAFTZ",
)  # fmt: skip
ACCOUNT_PAGES = ("CONNZ", "SUBSZ", "LEAFZ", "JSZ", "INFO")
PATHS = {"EXPVARZ": "/debug/vars", "STATZ": "/accstatz", "INFO": "/accountz"}
PARAMETERS = {
    "subscriptions": "subs",
    "account": "acc",
    "consumer": "consumers",
    "include_unused": "unused",
}
"""Options whose name in JSON is not their name in a URL."""
STATES = {0: "open", 1: "closed", 2: "all"}
BAD_REQUEST, FAILED = 400, 500


class SystemRequests:
    """Answers requests of one account's clients."""

    def __init__(self, server: "Server", account: "Account") -> None:
        self._server = server
        self._account = account
        router = account.router
        if account.name != server.settings.system_account:
            for subject in OWN:
                router.subscribe((PREFIX + subject).encode(), self)
            return
        for target in ("PING", server.server_id):
            for page in (*SERVER_PAGES, "STATSZ", "IDZ"):
                router.subscribe(f"{PREFIX}SERVER.{target}.{page}".encode(), self)
        others = ("USER.INFO", "SERVER.PING", "ACCOUNT.PING.STATZ")
        for subject in (*others, *(f"ACCOUNT.*.{page}" for page in ACCOUNT_PAGES)):
            router.subscribe((PREFIX + subject).encode(), self)

    def take(self, messages: Inbound) -> None:
        """Answer requests in order."""
        frames = messages.frames
        for subject, reply, payload in zip(messages.subjects, frames.replies(), frames.payloads(), strict=True):
            if not reply:
                continue
            asked = subject.decode(errors="replace").removeprefix(PREFIX)
            try:
                answer = self._answer(asked, bytes(payload), messages.origin)
            except Exception:
                logger.exception("request %s%s failed", PREFIX, asked)
                continue
            if answer is not None:
                self._account.router.send(reply, json.dumps(answer, separators=(",", ":")).encode())

    def _answer(self, asked: str, payload: bytes, origin: Origin) -> Fields | None:
        if asked == "USER.INFO":
            return self._wrap({"data": self._user(origin)})
        try:
            options = json.loads(payload) if payload.strip() else {}
            problem = "" if isinstance(options, dict) else "expected an object"
        except (ValueError, RecursionError) as error:
            options, problem = {}, str(error)
        if problem:
            return self._wrap({"error": {"code": BAD_REQUEST, "description": f"invalid request: {problem}"}})
        if not self._is_meant(options):
            return None
        name = self._account.name
        if name != self._server.settings.system_account:
            options.pop("account", None)
            return self._page(OWN[asked], options | {"acc": name, "accounts": [name]})
        return self._about_server(asked.split("."), options)

    def _about_server(self, words: list[str], options: Fields) -> Fields:
        kind, target, page = words[0], words[1], words[-1]
        if kind == "ACCOUNT" and (target != "PING" or page not in ("CONNZ", "STATZ")):
            options |= {"acc": target} | ({"subs": True} if page == "SUBSZ" else {})
        if page == "IDZ":
            about = self._wrap({})["server"]
            return {name: about[name] for name in ("name", "host", "id")}
        return self._statistics() if page in ("PING", "STATSZ") else self._page(page, options)

    def _wrap(self, fields: Fields) -> Fields:
        return {"server": describe_server(self._server.server_info, self._server.clock.now_ns()), **fields}

    def _is_meant(self, options: Fields) -> bool:
        """Tell whether a request to all servers is for this one."""
        server, exact = self._server, bool(options.pop("exact_match", False))

        def fits(given: object, own: str) -> bool:
            return not given or given == own or (not exact and isinstance(given, str) and given in own)

        return (
            fits(options.pop("server_name", ""), server.server_name)
            and fits(options.pop("host", ""), server.settings.host)
            and fits(options.pop("domain", ""), server.server_info.domain)
            and not options.pop("cluster", "")
            and not options.pop("tags", [])
        )

    def _user(self, origin: Origin) -> Fields:
        session = self._account.router.sessions.get(origin.client_id)
        fields: Fields = {"user": origin.user, "account": origin.account, "account_name": origin.account}
        permissions = session.permissions.granted if session is not None else None
        if permissions is not None:
            fields["permissions"] = _permissions(permissions)
        return fields

    def _page(self, name: str, options: Fields) -> Fields:
        """Return a monitoring page in the form of a response."""
        from strandline.broker.monitoring.pages import PAGES  # noqa: PLC0415
        from strandline.broker.monitoring.query import BadQuery, Query  # noqa: PLC0415 - imported only on use

        path = PATHS.get(name, f"/{name.lower()}")
        try:
            page = PAGES[path](self._server, self._server.counters, Query(path, _parameters(options)))
            data = {} if name == "RAFTZ" else _data(name, json.loads(page.body), options)
        except BadQuery as error:
            return self._wrap({"data": None, "error": {"code": FAILED, "description": str(error)}})
        except LookupError:
            text = f'account "{options.get("acc")}" not found'
            return self._wrap({"data": None, "error": {"code": FAILED, "description": text}})
        return self._wrap({"data": data | ({"status_code": page.status} if name == "HEALTHZ" else {})})

    def _statistics(self) -> Fields:
        whole = self._page("VARZ", {})["data"]
        names = ("start", "mem", "cores", "cpu", "connections", "total_connections")
        accounts = self._server.accounts.by_name.values()
        fields = {
            **{name: whole[name] for name in names},
            "active_accounts": sum(bool(each.router.sessions) for each in accounts),
            "subscriptions": whole["subscriptions"],
            "sent": {"msgs": whole["out_msgs"], "bytes": whole["out_bytes"]},
            "sent_to_clients": {"msgs": whole["out_client_msgs"], "bytes": whole["out_client_bytes"]},
            "received": {"msgs": whole["in_msgs"], "bytes": whole["in_bytes"]},
            "received_from_clients": {"msgs": whole["in_client_msgs"], "bytes": whole["in_client_bytes"]},
            "slow_consumers": whole["slow_consumers"],
            "active_servers": 1,
            **({"jetstream": whole["jetstream"]} if whole["jetstream"] else {}),
            "gomaxprocs": whole["gomaxprocs"],
        }
        return self._wrap({"statsz": fields})


def _data(name: str, told: Fields, options: Fields) -> Fields:
    """Return the part of a page that answers."""
    account = options.get("acc")
    if name == "INFO":
        return dict(told["account_detail"])
    if name == "JSZ" and account:
        return dict({each["name"]: each for each in told["account_details"]}[account])
    if name == "STATZ" and options.get("accounts"):
        rows = [row for row in told["account_statz"] if row["acc"] in options["accounts"]]
        return told | {"account_statz": rows}
    return told


def _parameters(options: Fields) -> dict[str, str]:
    """Return options in the form of a URL; options without a plain value are left out."""
    found: dict[str, str] = {}
    for name, value in options.items():
        if name == "subscriptions_detail" and value is True:
            found["subs"] = "detail"
        elif name == "state":
            found["state"] = STATES.get(value, "") if isinstance(value, int) else str(value)
        elif isinstance(value, bool):
            found.setdefault(PARAMETERS.get(name, name), "true" if value else "false")
        elif isinstance(value, int | str):
            found.setdefault(PARAMETERS.get(name, name), str(value))
    return found


def _permissions(permissions: "Permissions") -> Fields:
    fields: Fields = {}
    for name, rule in (("publish", permissions.publish), ("subscribe", permissions.subscribe)):
        if rule is not None:
            fields[name] = _rule(rule)
    responses = permissions.responses
    if responses is not None:
        fields["responses"] = {"max": responses.max_messages, "ttl": int(responses.expires_s * NS_PER_S)}
    return fields


def _rule(rule: "Rule") -> Fields:
    return {**({"allow": list(rule.allow)} if rule.allow else {}), **({"deny": list(rule.deny)} if rule.deny else {})}
