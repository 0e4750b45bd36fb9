"""Users, accounts and permissions: the blocks `authorization` and `accounts`.

Invariants: users without permissions get the default permissions; a response permission denies every other publish that
is not allowed explicitly; names are checked once all users are known.
"""

import re
import secrets
from base64 import b32decode
from binascii import crc_hqx
from collections.abc import Callable, Iterable
from functools import cache

from strandline.broker.settings.errors import ConfigurationRefused
from strandline.broker.settings.model import (
    GLOBAL_ACCOUNT,
    AccountSettings,
    JetStreamLimits,
    Permissions,
    ResponseRule,
    Rule,
    UserSettings,
)
from strandline.broker.settings.remotes import remotes
from strandline.broker.settings.syntax import Value
from strandline.broker.settings.values import (
    Fields,
    Table,
    duration_s,
    entries,
    integer,
    items,
    limit,
    not_served,
    nothing,
    read_block,
    read_each,
    refuse,
    seconds,
    size,
    text,
    texts,
    to,
    truth,
)
from strandline.wire import InvalidSubject, validate_subject

CONNECTION_TYPES = frozenset(
    {"STANDARD", "WEBSOCKET", "LEAFNODE", "LEAFNODE_WS", "MQTT", "MQTT_WS", "IN_PROCESS"}
)  # nats-server's; those that are not here allow nothing
PUBLIC_USER_KEY = re.compile(r"U[A-Z2-7]{55}")
CHECKSUM_BYTES = 2


def permissions(value: Value) -> Permissions:
    """Read a permissions block."""
    fields = read_block(entries(value), PERMISSIONS)
    publish: Rule | None = fields.get("publish")
    if fields.get("responses") is not None and (publish is None or publish.allow is None):
        fields["publish"] = Rule(allow=(), deny=publish.deny if publish else ())
    return Permissions(**fields)


def _rule(subjects: Callable[[Value], tuple[str, ...]]) -> Callable[[Value], Rule]:
    def read(value: Value) -> Rule:
        if isinstance(value.content, dict):
            return Rule(**read_block(value.content, {"allow": to("allow", subjects), "deny": to("deny", subjects)}))
        return Rule(allow=subjects(value))

    return read


def _subjects(value: Value) -> tuple[str, ...]:
    found = texts(value)
    for each in found:
        _check_subject(value, each, each)
    return found


def _subjects_with_queues(value: Value) -> tuple[str, ...]:
    """Read subjects, each with an optional queue group."""
    found = texts(value)
    for each in found:
        subject, _, queue = each.partition(" ")
        _check_subject(value, each, subject)
        if len(queue.split()) > 1:
            raise _not_a_subject(value, each)
    return found


def _check_subject(value: Value, written: str, subject: str) -> None:
    try:
        validate_subject(subject, wildcards=True)
    except InvalidSubject:
        raise _not_a_subject(value, written) from None


def _not_a_subject(value: Value, written: str) -> ConfigurationRefused:
    return refuse(value, f'subject "{written}" is not a valid subject')


def _responses(value: Value) -> ResponseRule | None:
    if isinstance(value.content, bool):
        return ResponseRule() if value.content else None
    found = read_block(entries(value), RESPONSES)
    return ResponseRule(**{name: given for name, given in found.items() if given})


PERMISSIONS: Table = {
    **dict.fromkeys(("publish", "pub", "import"), to("publish", _rule(_subjects))),
    **dict.fromkeys(("subscribe", "sub", "export"), to("subscribe", _rule(_subjects_with_queues))),
    **dict.fromkeys(("allow_responses", "publish_allow_responses"), to("responses", _responses)),
}
RESPONSES: Table = {
    **dict.fromkeys(("max", "max_msgs", "max_messages", "max_responses"), to("max_messages", integer)),
    **dict.fromkeys(("expires", "expiration", "ttl"), to("expires_s", duration_s)),
}


def _connection_types(value: Value) -> frozenset[str]:
    kinds = frozenset(kind.upper() for kind in texts(value))
    if kinds - CONNECTION_TYPES:
        raise refuse(value, f"invalid connection types {sorted(kinds - CONNECTION_TYPES)}")
    return kinds


USER: Table = {
    **dict.fromkeys(("user", "username"), to("user", text)),
    **dict.fromkeys(("password", "pass"), to("password", text)),
    "nkey": to("nkey", text),
    **dict.fromkeys(("permissions", "permission", "authorization"), to("permissions", permissions)),
    **dict.fromkeys(
        ("allowed_connection_types", "connection_types", "clients"), to("connection_types", _connection_types)
    ),
    "proxy_required": not_served("proxies are not served"),
}


def users(value: Value) -> tuple[UserSettings, ...]:
    """Read a list of users."""
    return tuple(read_each(items(value), _user))


def _user(value: Value) -> UserSettings:
    fields = read_block(entries(value), USER)
    if "nkey" in fields:
        if not _is_public_user_key(fields["nkey"]):
            raise refuse(value, "Not a valid public nkey for a user")
        if "user" in fields or "password" in fields:
            raise refuse(value, "Nkey users do not take usernames or passwords")
    elif not fields.get("user"):
        raise refuse(value, "User entry requires a user")
    return UserSettings(**fields)


def _is_public_user_key(key: str) -> bool:
    if not PUBLIC_USER_KEY.fullmatch(key):
        return False
    content = b32decode(key)
    return crc_hqx(content[:-CHECKSUM_BYTES], 0).to_bytes(CHECKSUM_BYTES, "little") == content[-CHECKSUM_BYTES:]


AUTHORIZATION: Table = {
    **dict.fromkeys(("user", "username"), to("user", text)),
    **dict.fromkeys(("password", "pass"), to("password", text)),
    "token": to("token", text),
    "timeout": to("auth_timeout_s", seconds),
    "users": to("users", users),
    **dict.fromkeys(
        ("default_permissions", "default_permission", "permissions"), to("default_permissions", permissions)
    ),
    "auth_callout": not_served("callouts for authorization are not served"),
    "proxy_required": not_served("proxies are not served"),
}


def authorization(value: Value) -> Fields:
    """Read the credentials of the global account: one user, several users, or a token.

    The field `single` says that there is one user or a token, which accounts with users exclude.
    """
    fields = read_block(entries(value), AUTHORIZATION)
    default = fields.pop("default_permissions", None)
    one = fields.pop("user", "")
    password = fields.pop("password", "")
    token = fields.get("token")
    if token and (one or password):
        raise refuse(value, "Cannot have a user/pass and token")
    for single, name in ((one, "single user/pass"), (token, "token")):
        if single and "users" in fields:
            raise refuse(value, f"Can not have a {name} and a users array")
        if single:
            fields["single"] = name
    if one:
        fields["users"] = (UserSettings(user=one, password=password, permissions=default),)
    else:
        fields["users"] = with_default(fields.get("users", ()), default)
    return fields


@cache
def anonymous_user() -> UserSettings:
    """Return the user of clients without credentials where only the system account has users.

    Its name is made up once in a process, so that a reload does not disconnect its clients.
    """
    return UserSettings(user=f"nats-{secrets.token_hex(4)}", password=secrets.token_urlsafe())


def with_default(found: Iterable[UserSettings], default: Permissions | None) -> tuple[UserSettings, ...]:
    """Return users with default permissions where they have none."""
    return tuple(
        each
        if each.permissions is not None or default is None
        else UserSettings(each.user, each.password, each.nkey, default, each.connection_types)
        for each in found
    )


ACCOUNT_JETSTREAM: Table = {
    **dict.fromkeys(("max_memory", "max_mem", "mem", "memory"), to("max_memory", size)),
    **dict.fromkeys(("max_store", "max_file", "max_disk", "store", "disk"), to("max_storage", size)),
    **dict.fromkeys(("max_streams", "streams"), to("max_streams", integer)),
    **dict.fromkeys(("max_consumers", "consumers"), to("max_consumers", integer)),
    **dict.fromkeys(("max_bytes_required", "max_stream_bytes", "max_bytes"), to("max_bytes_required", truth)),
    **dict.fromkeys(
        ("mem_max_stream_bytes", "memory_max_stream_bytes"),
        to("memory_max_stream_bytes", size),
    ),
    **dict.fromkeys(("disk_max_stream_bytes", "store_max_stream_bytes"), to("storage_max_stream_bytes", size)),
    "max_ack_pending": to("max_ack_pending", integer),
    "cluster_traffic": nothing,
}


def _account_jetstream(value: Value) -> JetStreamLimits | None:
    match value.content:
        case bool(content):
            return JetStreamLimits() if content else None
        case str("enabled" | "enable" | "disabled" | "disable" as content):
            return JetStreamLimits() if content.startswith("enable") else None
        case dict(content):
            return JetStreamLimits(**read_block(content, ACCOUNT_JETSTREAM))
        case content:
            raise refuse(value, f"expected 'enabled' or 'disabled' or a map, got {content!r}")


ALL_PERCENT = 100


def _destination(value: Value) -> str:
    subject = text(value)
    try:
        validate_subject(subject)
    except InvalidSubject as error:
        raise refuse(value, f"Trace destination {subject!r} is not valid") from error
    return subject


def _sampling(value: Value) -> int:
    content = value.content
    digits = content.removesuffix("%") if isinstance(content, str) else str(content)
    if not digits.isdecimal() or not digits.isascii() or not 0 < int(digits) <= ALL_PERCENT:
        raise refuse(value, f"Trace destination sampling value {content!r} is invalid, needs to be [1..100]")
    return int(digits)


MESSAGE_TRACE: Table = {"dest": to("trace_dest", _destination), "sampling": to("trace_sampling", _sampling)}


def _message_trace(value: Value) -> Fields:
    if isinstance(value.content, str):
        return {"trace_dest": _destination(value)}
    fields = read_block(entries(value), MESSAGE_TRACE)
    if "trace_sampling" in fields and "trace_dest" not in fields:
        raise refuse(value, "Trace destination sampling ignored since no destination was set")
    return fields


ACCOUNT_LIMITS: Table = {
    **dict.fromkeys(("max_connections", "max_conn"), to("max_connections", limit)),
    **dict.fromkeys(("max_subscriptions", "max_subs"), to("max_subscriptions", limit)),
    **dict.fromkeys(("max_payload", "max_pay"), to("max_payload", limit)),
    **dict.fromkeys(("max_leafnodes", "max_leafs"), nothing),
}
ACCOUNT: Table = {
    "users": to("users", users),
    "jetstream": to("jetstream", _account_jetstream),
    "limits": lambda value: read_block(entries(value), ACCOUNT_LIMITS),
    "default_permissions": to("default_permissions", permissions),
    "remotes": to("remotes", remotes),
    "nkey": nothing,
    "imports": not_served("imports between accounts are not served"),
    "exports": not_served("exports between accounts are not served"),
    **dict.fromkeys(("mappings", "maps"), not_served("mappings of subjects are not served")),
    **dict.fromkeys(("msg_trace", "trace_dest"), _message_trace),
}


def accounts(value: Value) -> tuple[AccountSettings, ...]:
    """Read the accounts: a list of names, or a map of blocks."""
    if isinstance(value.content, list):
        names = [text(each) for each in value.content]
        for each, name in zip(value.content, names, strict=True):
            if names.count(name) > 1:
                raise refuse(each, f"Duplicate Account Entry: {name}")
        return tuple(AccountSettings(name, jetstream=None) for name in names)
    blocks = entries(value)
    reserved = [name for name in blocks if name == GLOBAL_ACCOUNT]
    if reserved:
        raise refuse(blocks[GLOBAL_ACCOUNT], f'"{GLOBAL_ACCOUNT}" is a Reserved Account')
    found = read_each(blocks.values(), lambda block: read_block(entries(block), ACCOUNT))
    return tuple(_account(name, fields) for name, fields in zip(blocks, found, strict=True))


def _account(name: str, fields: Fields) -> AccountSettings:
    default = fields.pop("default_permissions", None)
    fields["users"] = with_default(fields.get("users", ()), default)
    return AccountSettings(name=name, **{"jetstream": None, **fields})


def check_names(found: Iterable[AccountSettings], single: str) -> None:
    """Refuse duplicate users, and accounts with users beside one user or a token (`single`)."""
    seen: set[str] = set()
    for account in found:
        if single and account.users and account.name != GLOBAL_ACCOUNT:
            hint = f"account {account.name} has users: name all users in accounts"
            raise ConfigurationRefused([f"Can not have a {single} and accounts"], hint=hint)
        for user in account.users:
            name = user.user or user.nkey
            if name in seen:
                raise ConfigurationRefused([f'Duplicate {"nkey" if user.nkey else "user"} "{name}" detected'])
            seen.add(name)
