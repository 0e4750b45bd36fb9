"""Object stores by their address, opened with each ecosystem's own conventions.

    s3://bucket/prefix               AWS_ENDPOINT_URL (S3 compatibles), AWS_REGION, AWS_ACCESS_KEY_ID, AWS_PROFILE, …
    gs://bucket/prefix               GOOGLE_APPLICATION_CREDENTIALS, …
    az://container/prefix            AZURE_STORAGE_ACCOUNT_NAME, AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_ENDPOINT, …
    file:///folder                   a local store; the folder is made where it is missing
    memory://name                    one store for each name in a process, for tests

STRANDLINE_ENCRYPTION_KEYS names a file of keys (`strandline.objects.key_ring`): then the objects of every store are
encrypted before they are sent.

Invariant: `open_objects(…, conditional=True)` returns only a store that was seen refusing a write whose condition does
not hold.
"""

import configparser
import os
import threading
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit

from strandline.errors import InvalidInput
from strandline.extras import needs
from strandline.objects.contracts import ObjectStore
from strandline.objects.counted import CountedObjects, RequestCounts
from strandline.objects.errors import InvalidAddress, StoreRefused
from strandline.objects.key_ring import KeyRing, ring_of
from strandline.objects.keys import validate_key
from strandline.objects.local import LocalObjects
from strandline.objects.memory import MemoryObjects
from strandline.objects.probe import probe_conditions
from strandline.objects.retrying import DEFAULT_RETRIES, Retries, RetryingObjects

_KEYS = {
    "access_key_id": "AWS_ACCESS_KEY_ID",
    "secret_access_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
}
_ENCRYPTION = {
    "server_side_encryption": "AWS_SERVER_SIDE_ENCRYPTION",
    "sse_kms_key_id": "AWS_SSE_KMS_KEY_ID",
    "sse_bucket_key_enabled": "AWS_SSE_BUCKET_KEY_ENABLED",
    "sse_customer_key_base64": "AWS_SSE_CUSTOMER_KEY_BASE64",
}
"""How S3 itself is to encrypt: its own keys, KMS, or a customer's key."""
UNSORTED_BUCKETS = "--x-s3"
"""How the names of S3's directory buckets end, whose listings have no order."""
_OTHER_SERVERS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT", "GOOGLE_ALLOW_HTTP")
"""Settings with which a store is not the provider's own."""
_REMOTE = ("s3", "gs", "az")
_memory_stores: dict[str, MemoryObjects] = {}
_memory_lock = threading.Lock()


def open_objects(
    address: str,
    *,
    conditional: bool = False,
    environ: Mapping[str, str] = os.environ,
    retries: Retries = DEFAULT_RETRIES,
    keys: KeyRing | None = None,
    counts: RequestCounts | None = None,
) -> ObjectStore:
    """Open the store at an address; with `conditional`, probe that it honours conditional writes.

    With `keys`, or a file of keys that the environment names, its objects are encrypted. `counts` counts its requests.
    """
    ring = keys or ring_of(environ)
    store = _opened(address, environ, retries, counts)
    if ring is not None:
        from strandline.objects.encrypted import EncryptedObjects  # noqa: PLC0415 - an extra

        store = EncryptedObjects(store, ring)
    if conditional:
        try:
            probe_conditions(store)
        except BaseException:
            store.close()
            raise
    return store


def local_folder(address: str) -> Path | None:
    """Return the folder of a local store; None for what is not the address of one."""
    parts = _split(address)
    is_local = parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path.startswith("/")
    return Path(unquote(parts.path)) if is_local and not (parts.query or parts.fragment) else None


def _split(address: str) -> SplitResult:
    try:
        return urlsplit(address)
    except ValueError:  # such as a "[" without a "]"; its words may hold a credential
        raise InvalidAddress(f"{address.partition('://')[0]}://…", "it cannot be parsed") from None


def _opened(address: str, environ: Mapping[str, str], retries: Retries, counts: RequestCounts | None) -> ObjectStore:
    """Open the store; only those of a network are tried again."""
    store, is_remote = _plain(address, environ)
    if counts is not None:
        store = CountedObjects(store, counts)
    return RetryingObjects(store, retries) if is_remote else store


def _plain(address: str, environ: Mapping[str, str]) -> tuple[ObjectStore, bool]:
    parts = _split(address)
    if parts.username or parts.password:
        raise InvalidAddress(f"{parts.scheme}://…", "credentials do not belong into an address")
    if parts.query or parts.fragment:
        raise InvalidAddress(address, "it has a query or a fragment")
    if parts.scheme == "file":
        folder = local_folder(address)
        if folder is None:
            raise InvalidAddress(address, "a local store has an absolute path: file:///folder")
        return LocalObjects(folder), False
    if parts.scheme == "memory":
        name = address.removeprefix("memory://")
        with _memory_lock:
            return _memory_stores.setdefault(name, MemoryObjects(name)) if name else MemoryObjects(), False
    if parts.scheme not in _REMOTE:
        raise InvalidAddress(address, f"the scheme {parts.scheme!r} is unknown" if parts.scheme else "it has no scheme")
    prefix = parts.path.strip("/")
    if not parts.netloc:
        raise InvalidAddress(address, "it names no bucket")
    if prefix:
        validate_key(prefix)
    # Each place has one address, with a "/" at its end or without: what is kept of a place elsewhere is found by it.
    return _remote(parts.scheme, f"{parts.scheme}://{parts.netloc}/{prefix}".rstrip("/"), environ), True


def _remote(scheme: str, address: str, environ: Mapping[str, str]) -> ObjectStore:
    with needs("s3"):
        import obstore.store  # noqa: PLC0415 - only buckets need it
        from obstore.exceptions import BaseError  # noqa: PLC0415

    from strandline.objects.remote import RemoteObjects  # noqa: PLC0415

    open_store: Any = obstore.store.from_url  # its overloads tell the stores apart, which the address does here
    client: dict[str, Any] = {}
    config: dict[str, Any] = {}
    if scheme == "s3":
        endpoint = environ.get("AWS_ENDPOINT_URL_S3") or environ.get("AWS_ENDPOINT_URL")
        config = _s3_config(environ, endpoint)
        client["allow_http"] = bool(endpoint and endpoint.startswith("http://"))
        if bundle := environ.get("AWS_CA_BUNDLE"):
            client["root_certificate"] = Path(bundle).read_bytes()
    if scheme == "gs":
        client["allow_http"] = environ.get("GOOGLE_ALLOW_HTTP", "").lower() in ("1", "true")
    if scheme == "az":
        endpoint = environ.get("AZURE_STORAGE_ENDPOINT") or environ.get("AZURE_ENDPOINT") or ""
        is_emulator = environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("1", "true")
        client["allow_http"] = endpoint.startswith("http://") or is_emulator

    def opened(timeout: timedelta) -> Any:  # noqa: ANN401 - any of obstore's stores
        options = {**client, "timeout": timeout}
        try:
            return open_store(address, config=config or None, client_options=options, retry_config={"max_retries": 0})
        except (BaseError, ValueError) as error:
            raise StoreRefused(address, str(error).split("\n", 1)[0]) from error

    return RemoteObjects(opened, address, sorts_bytes=_sorts_bytes(scheme, address, environ))


def _sorts_bytes(scheme: str, address: str, environ: Mapping[str, str]) -> bool:
    """Return whether a store is known to sort whole keys: those of Google and Amazon, but for directory buckets."""
    if any(name in environ for name in _OTHER_SERVERS):
        return False
    return scheme == "gs" or (scheme == "s3" and not _split(address).netloc.endswith(UNSORTED_BUCKETS))


def _s3_config(environ: Mapping[str, str], endpoint: str | None) -> dict[str, Any]:
    """Return what obstore does not take from the environment by itself."""
    config: dict[str, Any] = {}
    if endpoint:
        config["endpoint"] = endpoint
    config |= {ours: environ[name] for ours, name in _ENCRYPTION.items() if environ.get(name)}
    profile = environ.get("AWS_PROFILE", "default")
    if "AWS_ACCESS_KEY_ID" in environ:
        config |= {ours: environ[name] for ours, name in _KEYS.items() if name in environ}
    else:
        config |= _shared_credentials(environ, profile)
    region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or config.pop("region", None)
    if region or endpoint:
        config["region"] = region or "us-east-1"
    return config


def _shared_credentials(environ: Mapping[str, str], profile: str) -> dict[str, str]:
    """Return the keys and region of a profile in the files that all AWS tools share."""
    home = Path(environ.get("HOME", "~")).expanduser() / ".aws"
    files = (
        (environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials", profile),
        (environ.get("AWS_CONFIG_FILE") or home / "config", profile if profile == "default" else f"profile {profile}"),
    )
    found: dict[str, str] = {}
    for path, section in files:
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(path)
        if parser.has_section(section):
            found = {**dict(parser[section]), **found}
    names = {
        "aws_access_key_id": "access_key_id",
        "aws_secret_access_key": "secret_access_key",
        "aws_session_token": "session_token",
        "region": "region",
    }
    if not found and "AWS_PROFILE" in environ:
        raise InvalidInput(f"there is no AWS profile {profile!r}", hint="check AWS_PROFILE and ~/.aws/credentials")
    return {ours: found[theirs] for theirs, ours in names.items() if theirs in found}
