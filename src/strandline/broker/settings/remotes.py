"""Remote servers of mirrors and sources: our own block `remotes`.

Invariants: a remote is identified by the API prefix of a stream's `external`; it is one URL, or a map.
"""

from typing import Any

from strandline.broker.settings.syntax import Value
from strandline.broker.settings.values import Table, entries, read_block, read_each, refuse, text, texts, to, truth

REMOTE: Table = {
    **dict.fromkeys(("url", "urls"), to("servers", texts)),
    "creds_file": to("creds_file", text),
    "ca_file": to("tls_ca", text),
    "cert_file": to("tls_cert", text),
    "key_file": to("tls_key", text),
    "handshake_first": to("tls_first", truth),
    "domain": to("domain", text),
    "api_prefix": to("prefix", text),
}


def remotes(value: Value) -> dict[str, Any]:
    """Read all remotes by API prefix."""
    blocks = entries(value)
    return dict(zip(blocks, read_each(blocks.values(), _remote), strict=True))


def _remote(value: Value) -> object:
    from strandline.nats.settings import NatsSettings  # noqa: PLC0415 - slow to import, and rarely used

    if isinstance(value.content, str):
        return NatsSettings(value.content)
    fields = read_block(entries(value), REMOTE)
    if "servers" not in fields:
        raise refuse(value, "a remote needs a url")
    return NatsSettings(fields.pop("servers"), **fields)
