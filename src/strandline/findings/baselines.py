"""Baselines: known findings, to leave out of later reports.

A baseline is a report of gitleaks (a JSON array) or our own JSON lines, one object a line with `rule_id`, `path`,
`line` and `nth`: which of the distinct secrets of that rule in that path, in the order of their places. That fits in
every clone, under any key, and says nothing of the secret. An entry with a secret (gitleaks', in the clear; `secret`,
the keyed hash in hex) also knows that secret at its path, under any rule; one with neither knows rule, path and line.

Invariants: what we write holds nothing that is derived from a secret; a secret that a report holds is hashed with the
tenant's key while it is read and then forgotten; no error shows a byte of a report.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from strandline.errors import InvalidInput
from strandline.pipeline.identity import DIGEST_BYTES, SecretHash, TenantSecretKey, norm_hash, secret_hash
from strandline.scan.path_globs import clean_path


@dataclass(frozen=True)
class Baseline:
    """Known findings: secrets at paths, and rules at lines of paths for entries without a secret."""

    secrets: frozenset[tuple[str, SecretHash]] = frozenset()
    places: frozenset[tuple[str, str, int]] = frozenset()
    source: str = "baseline"
    numbered: frozenset[tuple[str, str, int]] = frozenset()
    """Rules, paths, and which of the secrets there."""

    def __repr__(self) -> str:
        return f"Baseline({len(self)} entries of {self.source})"

    def __len__(self) -> int:
        return len(self.secrets) + len(self.places) + len(self.numbered)

    def knows(self, rule_id: str, path: str, line: int, secret: SecretHash, nth: int = 0) -> bool:
        """Return whether the baseline holds a finding."""
        clean = clean_path(path)
        if (clean, secret) in self.secrets or (rule_id, clean, line) in self.places:
            return True
        return (rule_id, clean, nth) in self.numbered

    def misfits(self, found: Mapping[tuple[str, str], int]) -> str:
        """Return why the baseline does not fit findings, counted by rule and path, or an empty text.

        Paths without a finding say nothing: they may be outside this scan, or mended.
        """
        paths = {path for _, path in found}
        known = {path for path, _ in self.secrets} | {path for _, path, _ in (*self.places, *self.numbered)}
        fewer = {path for rule, path, nth in self.numbered if 0 < found.get((rule, path), 0) < nth}
        if fewer:
            some = f"{len(fewer):,} of its paths have" if len(fewer) > 1 else f"{next(iter(fewer))} has"
            return f"{some} fewer secrets by now: it may leave out the wrong ones, make it again"
        return "" if not known or paths & known else "none of its paths has a finding here: is it of another folder?"


def parse_baseline(text: str, key: TenantSecretKey, source: str = "baseline") -> Baseline:
    """Return the baseline in a report of gitleaks, or in our JSON lines."""
    secrets: set[tuple[str, SecretHash]] = set()
    places: set[tuple[str, str, int]] = set()
    numbered: set[tuple[str, str, int]] = set()
    is_array = text.lstrip("\ufeff \t\r\n").startswith("[")
    for number, entry in enumerate(_array(text, source) if is_array else _lines(text, source), 1):
        where = f"{source}, entry {number}"
        if not isinstance(entry, dict):
            raise InvalidInput(f"{where}: it is not an object")
        path = clean_path(_text(entry, ("path", "File"), where))
        secret, nth = _secret(entry, key, where), entry.get("nth")
        if secret is not None:
            secrets.add((path, secret))
        if isinstance(nth, int) and not isinstance(nth, bool) and nth > 0:
            numbered.add((_text(entry, ("rule_id",), where), path, nth))
        elif secret is None:
            places.add((_text(entry, ("rule_id", "RuleID"), where), path, _line(entry, where)))
    return Baseline(frozenset(secrets), frozenset(places), source, frozenset(numbered))


def format_baseline(findings: Iterable[tuple[str, str, int, int]]) -> str:
    """Return findings, as rule, path, line and number of the secret there, in our JSON lines."""
    rows = [{"rule_id": rule, "path": clean_path(path), "line": line, "nth": nth} for rule, path, line, nth in findings]
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def _array(text: str, source: str) -> list[Any]:
    value = _json(text.lstrip("\ufeff"), source)
    return value if isinstance(value, list) else []


def _lines(text: str, source: str) -> Iterator[Any]:
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if line.strip():
            yield _json(line, f"{source}, line {number}")


def _json(text: str, where: str) -> Any:  # noqa: ANN401 - callers check the type
    # The error of the decoder holds the whole text, and with it secrets: it must not even be the context of ours.
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    raise InvalidInput(f"{where}: not JSON", hint="give a JSON report of gitleaks, or our JSON lines")


def _text(entry: Mapping[str, Any], names: tuple[str, ...], where: str) -> str:
    value = next((entry[name] for name in names if name in entry), None)
    if not isinstance(value, str) or not value:
        raise InvalidInput(f"{where}: it has no {' or '.join(names)}")
    return value


def _line(entry: Mapping[str, Any], where: str) -> int:
    value = entry.get("line", entry.get("StartLine"))
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise InvalidInput(f"{where}: it has neither a secret nor a line")
    return value


def _secret(entry: Mapping[str, Any], key: TenantSecretKey, where: str) -> SecretHash | None:
    """Return the hash of an entry's secret, or None if the entry has none or hides it."""
    if isinstance(entry.get("secret"), str):
        digest = b""
        with suppress(ValueError):
            digest = bytes.fromhex(entry["secret"])
        if len(digest) != DIGEST_BYTES:
            raise InvalidInput(f"{where}: its secret is not {DIGEST_BYTES} bytes in hex")
        return SecretHash(digest)
    plain = entry.get("Secret")
    if not isinstance(plain, str) or not plain or plain == "REDACTED" or plain.endswith("..."):
        return None
    return secret_hash(key, norm_hash(plain.encode(errors="surrogatepass")))
