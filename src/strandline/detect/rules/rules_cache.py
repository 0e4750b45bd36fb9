"""Rules as parsed and checked, kept for the next process: reading and checking 400 expressions takes a second.

    <cache>/rules/<64 hex digits>.rules    magic, BLAKE3 of the rest, the rules and their fingerprints (pickled)

The name is the digest of the text that was parsed, of the code that parses and checks it, and of Python's version.

Invariants: a cached set is the one that parsing the same text again would give; a file that is missing, broken or not
about rules is a miss; nothing but the classes of `strandline.detect.rules.rule` is ever made from one.
"""

import io
import pickle
import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib import resources
from pathlib import Path

from blake3 import blake3

from strandline.cache import cache_folder, read_cached, write_cached
from strandline.detect.rules import rule
from strandline.detect.rules.rule import RuleSet
from strandline.protocol.canonical import canonical_value, derive
from strandline.version import __version__

FILES_MAX = 32
_MAGIC = b"strandline rules 1\n"
_DIGEST_BYTES = 32
_MAKERS = ("detect/expressions", "detect/rules", "detect/tokens", "detect/limits.py", "pipeline/policy.py")
"""Code that decides what a text means, what is refused, and the fingerprint of a rule."""


def cached_rules(texts: Sequence[bytes], parse: Callable[[], tuple[RuleSet, bool]]) -> RuleSet:
    """Return the rules of some texts: those of an earlier process, or what `parse` makes of the same texts.

    `parse` also returns whether it read nothing else.
    """
    path = _path(texts)
    data = read_cached(path)
    found = None if data is None else parse_cached(data)
    if found is None:
        found, is_alone = parse()
        if is_alone:
            write_cached(path, format_cached(found), FILES_MAX)
    return found


def format_cached(rules: RuleSet) -> bytes:
    """Return rules as the bytes of a cache file."""
    fingerprints = dict(rules.policy().fingerprints) if rules.rules else {}
    body = pickle.dumps((rules.rules, rules.allowlists, fingerprints), pickle.HIGHEST_PROTOCOL)
    return _MAGIC + blake3(body).digest() + body


def parse_cached(data: bytes) -> RuleSet | None:
    """Return the rules of a cache file; None if it is not one, or not whole."""
    begin = len(_MAGIC) + _DIGEST_BYTES
    body = memoryview(data)[begin:]
    if not data.startswith(_MAGIC) or blake3(body).digest() != data[len(_MAGIC) : begin]:
        return None
    try:
        return RuleSet.checked(*_Rules(io.BytesIO(body)).load())
    except (pickle.UnpicklingError, TypeError, AttributeError):
        return None


class _Rules(pickle.Unpickler):
    """Makes rules and their parts, and refuses everything else."""

    def find_class(self, module: str, name: str) -> object:
        if module != rule.__name__ or name not in {"Rule", "Allowlist", "Required"}:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a rule")
        return getattr(rule, name)


def _path(texts: Sequence[bytes]) -> Path:
    key = derive("strandline/rules-cache/v1", canonical_value([_code_digest(), *texts]))
    return cache_folder() / "rules" / f"{key.hex()}.rules"


@cache
def _code_digest() -> bytes:
    package = resources.files("strandline")
    places = [package / name for name in (*_MAKERS, "protocol/canonical.py")]
    files = [file for place in places for file in (place.iterdir() if place.is_dir() else [place])]
    code = {str(file): file.read_bytes() for file in files if file.name.endswith(".py")}
    return derive("strandline/rules-code/v1", canonical_value([__version__, sys.version, *map(code.get, sorted(code))]))
