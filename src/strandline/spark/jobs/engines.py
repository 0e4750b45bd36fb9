"""Engines, compiled once: for all tasks of a process, and for all processes of a user.

    <cache>/engines/<policy, 64 hex digits>.hs     magic, BLAKE3 of the rest, refused rules (u32 count, u32s), database

Invariants: a cached file is taken only if it is whole; one that is missing, broken or of another machine is built again
and replaced atomically; a cache that cannot be written costs time and nothing else; the oldest files make room for new
ones. A file holds rules, never a key.
"""

import contextlib
import os
import struct
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

from blake3 import blake3

from strandline.pipeline.identity import PolicyHash, TenantSecretKey
from strandline.scan import Engine, Limits, RuleSet, Saved
from strandline.spark.cache import cache_folder

ENGINES_MAX = 8
FILES_MAX = 64
_MAGIC = b"strandline engine 1\n"
_DIGEST_BYTES = 32
_U32 = struct.Struct("<I")
_engines: OrderedDict[tuple[PolicyHash, bytes], Engine] = OrderedDict()
_lock = threading.Lock()


def engine_for(rules: RuleSet, limits: Limits, key: TenantSecretKey) -> Engine:
    """Return the engine of rules and limits: this process's, or from the cache, or compiled."""
    policy = rules.policy(limits).hash
    with _lock:
        known = _engines.get((policy, key))
        if known is None:
            known = _load(rules, limits, key, policy)
            _engines[policy, key] = known
        _engines.move_to_end((policy, key))
        while len(_engines) > ENGINES_MAX:
            _engines.popitem(last=False)
        return known


def format_saved(saved: Saved) -> bytes:
    """Return a compiled engine as the bytes of a cache file."""
    refused = sorted(saved.refused)
    body = _U32.pack(len(refused)) + b"".join(map(_U32.pack, refused)) + saved.database
    return _MAGIC + blake3(body).digest() + body


def parse_saved(data: bytes) -> Saved | None:
    """Return the compiled engine of a cache file; None if it is not one, or not whole."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = data[begin:]
    if not data.startswith(_MAGIC) or blake3(body).digest() != data[len(_MAGIC) : begin]:
        return None
    (count,) = _U32.unpack_from(body)
    numbers = struct.unpack_from(f"<{count}I", body, _U32.size)
    return Saved(body[_U32.size * (count + 1) :], frozenset(numbers))


def _load(rules: RuleSet, limits: Limits, key: TenantSecretKey, policy: PolicyHash) -> Engine:
    path = cache_folder() / "engines" / f"{policy.hex()}.hs"
    saved = _read(path)
    engine = Engine(rules, limits, key=key, saved=saved)
    if saved is None or engine.saved() != saved:
        _write(path, format_saved(engine.saved()))
    return engine


def _read(path: Path) -> Saved | None:
    try:
        saved = parse_saved(path.read_bytes())
        os.utime(path)  # it is of use: others make room
    except OSError:
        return None
    return saved


def _write(path: Path, data: bytes) -> None:
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, exist_ok=True)
        file, temporary = tempfile.mkstemp(dir=path.parent)
        try:
            with os.fdopen(file, "wb") as out:
                out.write(data)
            os.replace(temporary, path)  # noqa: PTH105 - atomic, and the content vouches for itself
        except OSError:
            os.unlink(temporary)  # noqa: PTH108
            raise
        _forget_oldest(path.parent)


def _forget_oldest(folder: Path) -> None:
    files = sorted(folder.iterdir(), key=lambda file: file.stat().st_mtime_ns)
    for file in files[:-FILES_MAX]:
        file.unlink(missing_ok=True)
