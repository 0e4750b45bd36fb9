"""Engines, compiled once: for all tasks of a process, and for all processes of a user.

    <cache>/engines/<policy, 64 hex digits>.hs   magic, BLAKE3 of the rest, u32 size of the head, head (JSON), databases

Invariants: a cached file is taken only if it is whole and was made by this code from these rules; one that is missing,
broken or of another machine is built again and replaced atomically; a cache that cannot be written costs time and
nothing else; the oldest files make room for new ones. A file holds rules, never a key.
"""

import json
import struct
import threading
from collections import OrderedDict
from itertools import accumulate, pairwise

from blake3 import blake3

from strandline.cache import cache_folder, read_cached, write_cached
from strandline.detect import Engine, Limits, RuleSet, SavedEngine
from strandline.detect.matching import Layout, Reach
from strandline.pipeline.identity import PolicyHash, TenantSecretKey

ENGINES_MAX = 8
FILES_MAX = 64
_MAGIC = b"strandline engine 5\n"
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
        "database_bytes": len(saved.database),
        "paths_bytes": len(saved.paths),
        "checks": [[number, len(data)] for number, data in saved.checks],
        "fixed": [[name, len(data)] for name, data in saved.fixed],
    }
    text = json.dumps(head, separators=(",", ":")).encode()
    more = (data for _, data in (*saved.checks, *saved.fixed))
    body = b"".join((_U32.pack(len(text)), text, saved.database, saved.paths, *more))
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
    sizes = (length for _, length in (*head["checks"], *head["fixed"]))
    ends = accumulate((head["database_bytes"], head["paths_bytes"], *sizes), initial=_U32.size + size)
    database, paths, *more = (bytes(body[begin:end]) for begin, end in pairwise(ends))
    checks = tuple((number, more[at]) for at, (number, _) in enumerate(head["checks"]))
    fixed = tuple((name, more[at]) for at, (name, _) in enumerate(head["fixed"], len(checks)))
    return SavedEngine(bytes.fromhex(head["maker"]), database, layout, tuple(head["slow_rules"]), paths, checks, fixed)


def _load(rules: RuleSet, limits: Limits, key: TenantSecretKey, policy: PolicyHash) -> Engine:
    path = cache_folder() / "engines" / f"{policy.hex()}.hs"
    data = read_cached(path)
    saved = None if data is None else parse_saved(data)
    engine = Engine(rules, limits, key=key, saved=saved)
    if not engine.is_from_saved:
        write_cached(path, format_saved(engine.saved()), FILES_MAX)
    return engine
