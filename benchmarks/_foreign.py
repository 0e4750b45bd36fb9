"""Files in the forms of other programs (`data/foreign.toml`, `data/documented.toml`): recall by class, false findings.

Each file is written as a manual or a public tree of that program shows it, with made values; its class names what is
hard about it (an escape, a command line, a file of credentials). The marks around a secret are cut out before the file
is scanned. A secret is found if a finding stands on it; a finding that stands on no mark is a false one.

Invariants: the same round gives the same bytes; a value is new in every round; no value was ever a real secret.
"""

import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks._peer import PeerFinding
from strandline.detect import Engine, expand

OPEN, CLOSE = "⟦", "⟧"
CLEAN = "clean"
_FOLDER = Path(__file__).with_name("data")
FOREIGN, DOCUMENTED = _FOLDER / "foreign.toml", _FOLDER / "documented.toml"


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file, its class, and the spans of its secrets."""

    path: str
    kind: str
    data: bytes
    secrets: tuple[tuple[int, int], ...]


@dataclass
class ForeignScore:
    """What an engine finds: secrets and found ones by class, those it misses, and the false findings."""

    secrets: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    true: int = 0
    missed: list[tuple[str, str]] = field(default_factory=list)
    false: list[tuple[str, str]] = field(default_factory=list)

    @property
    def precision(self) -> float:
        """Return the share of findings that stand on a secret."""
        return self.true / (self.true + len(self.false) or 1)

    @property
    def recall(self) -> float:
        """Return the share of the secrets that are found."""
        return self.found.total() / (self.secrets.total() or 1)


def foreign_files(round_number: int = 0, data: Path = FOREIGN) -> Iterator[ForeignFile]:
    """Yield the files of a collection, filled in with the values of a round."""
    for number, each in enumerate(tomllib.loads(data.read_text())["files"]):
        yield marked(each["path"], each["class"], expand(each["text"], f"{data.stem}/{number}/{round_number}"))


def marked(path: str, kind: str, text: str) -> ForeignFile:
    """Return the file of a text with marks."""
    data, secrets = b"", []
    for at, part in enumerate(text.split(OPEN)):
        secret, _, after = part.partition(CLOSE) if at else ("", "", part)
        if at:
            secrets.append((len(data), len(data) + len(secret.encode())))
        data += (secret + after).encode()
    return ForeignFile(path, kind, data, tuple(secrets))


def foreign_score(engine: Engine, rounds: int = 1, data: Path = FOREIGN) -> ForeignScore:
    """Return what an engine finds in some rounds of the files of a collection."""
    score = ForeignScore()
    for file in (file for number in range(rounds) for file in foreign_files(number, data)):
        findings = engine.scan(file.data, file.path).findings
        score.secrets[file.kind] += len(file.secrets)
        for start, end in file.secrets:
            on = [found for found in findings if found.start < end and start < found.end]
            score.true += len(on)
            score.found[file.kind] += bool(on)
            score.missed += [] if on else [(file.kind, file.path)]
        score.false += [
            (file.path, found.rule_id)
            for found in findings
            if not any(found.start < end and start < found.end for start, end in file.secrets)
        ]
    return score


def write_foreign(folder: Path) -> dict[str, ForeignFile]:
    """Write the files of the first round, each to a folder of its own, and return them by their paths there."""
    files = {f"{number}/{file.path}": file for number, file in enumerate(foreign_files())}
    for path, file in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(file.data)
    return files


def peer_foreign_score(findings: Sequence[PeerFinding], files: dict[str, ForeignFile]) -> ForeignScore:
    """Return what the peer found in the files; it tells lines, so a finding on a secret's lines counts."""
    score = ForeignScore()
    lines = {path: [_lines(file.data, *span) for span in file.secrets] for path, file in files.items()}
    reached: set[tuple[str, int]] = set()
    for found in findings:
        spans = enumerate(lines[found.path])
        on = [at for at, (first, last) in spans if found.first_line <= last and first <= found.last_line]
        reached.update((found.path, at) for at in on)
        score.true += bool(on)
        score.false += [] if on else [(found.path, found.rule_id)]
    for path, file in files.items():
        score.secrets[file.kind] += len(file.secrets)
        score.found[file.kind] += sum((path, at) in reached for at in range(len(file.secrets)))
    return score


def _lines(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Return the first and the last line of a span."""
    return data.count(b"\n", 0, start) + 1, data.count(b"\n", 0, end) + 1
