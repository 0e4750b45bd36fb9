"""Engines, compiled once: for all tasks of a process, and for all processes of a user.

    <cache>/engines/<policy, 64 hex digits>.hs   magic, BLAKE3 of the rest, u32 size of the head, head (JSON), database

Invariants: a cached file is taken only if it is whole and was made by this code from these rules; one that is missing,
broken or of another machine is built again and replaced atomically; a cache that cannot be written costs time and
nothing else; the oldest files make room for new ones. A file holds rules, never a key.
"""

import contextlib
import json
import os
import struct
import tempfile
import threading
from collections import OrderedDict
from pathlib import Path

from blake3 import blake3

from strandline.cache import cache_folder
from strandline.detect import Engine, Limits, RuleSet, SavedEngine
from strandline.detect.matching import Layout, Reach
from strandline.pipeline.identity import PolicyHash, TenantSecretKey

ENGINES_MAX = 8
FILES_MAX = 64
_MAGIC = b"strandline engine 2\n"
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


def format_saved(saved: SavedEngine) -> bytes:
    """Return a compiled engine as the bytes of a cache file."""
    layout = saved.layout
    head = {
        "maker": saved.maker.hex(),
        "reaches": layout.reaches,
        "whole": layout.whole,
        "worded": sorted(layout.worded),
        "notes": layout.notes,
        "slow_rules": saved.slow_rules,
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    body = b"".join((_U32.pack(len(text)), text, saved.database))
    return _MAGIC + blake3(body).digest() + body


def parse_saved(data: bytes) -> SavedEngine | None:
    """Return the compiled engine of a cache file; None if it is not one, or not whole."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[begin:]
    if not data.startswith(_MAGIC) or blake3(body).digest() != data[len(_MAGIC) : begin]:
        return None
    (size,) = _U32.unpack_from(body)
    head = json.loads(bytes(body[_U32.size : _U32.size + size]))
    layout = Layout(
        tuple(Reach(tuple(rules), before, after) for rules, before, after in head["reaches"]),
        tuple(head["whole"]),
        frozenset(head["worded"]),
        tuple(head["notes"]),
    )
    database = bytes(body[_U32.size + size :])
    return SavedEngine(bytes.fromhex(head["maker"]), database, layout, tuple(head["slow_rules"]))


def _load(rules: RuleSet, limits: Limits, key: TenantSecretKey, policy: PolicyHash) -> Engine:
    path = cache_folder() / "engines" / f"{policy.hex()}.hs"
    saved = _read(path)
    engine = Engine(rules, limits, key=key, saved=saved)
    if saved is None or engine.saved() != saved:
        _write(path, format_saved(engine.saved()))
    return engine


def _read(path: Path) -> SavedEngine | None:
    try:
        saved = parse_saved(path.read_bytes())
        os.utime(path)  # recently used: the cache evicts other files first
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
