"""A corpus with labels: files with one secret each, of every rule, in many surroundings; and files without any.

Values come from the formats that the rules' examples name, filled in anew; the surroundings come from `_surroundings`
and `_decoys` and know nothing of the rules. All follows from a seed, so the corpus is the same everywhere.
"""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks._decoys import DECOYS, Maker
from benchmarks._surroundings import BLOCKS, CLOSE, OPEN, SURROUNDINGS, Surrounding, written
from strandline.detect import Rule, RuleSet, expand

SEED = 20_261_115
NAMED_PER_RULE, FREE_PER_RULE, BLOCKS_PER_RULE = 8, 4, 2
DECOY_COPIES = 4
ASSIGNED = re.compile(r"(?:export )?([\w.-]+) ?= ?\"?(\S+?)\"?")
PREFIXES = ("", "", "", "PROD_", "SHOP_", "MY_", "APP_")
_CAPTURE = re.compile(r"\((?!\?)")
_CAPTURE_MAX = 30


@dataclass(frozen=True, slots=True)
class Label:
    """Where a secret stands: its file, the span of its bytes, and the first and last of its lines."""

    path: str
    start: int
    end: int
    first_line: int
    last_line: int
    rule_id: str
    provider: str
    surrounding: str


@dataclass(frozen=True, slots=True)
class Corpus:
    """Files by path, and labels by path; a file without a label holds no secret."""

    files: dict[str, bytes]
    labels: dict[str, Label]

    def write(self, folder: Path) -> None:
        """Write the files."""
        for path, data in self.files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)


def corpus(rules: RuleSet) -> Corpus:
    """Return the corpus of some rules."""
    files: dict[str, bytes] = {}
    labels: dict[str, Label] = {}
    number = 0
    for at, rule in enumerate(rules.rules):
        for surrounding, name, value in planted(rule, at):
            number += 1
            rng = random.Random(f"{SEED}/{rule.id}/{number}")
            path, text = written(surrounding, number, name, value, rng)
            files[path], labels[path] = labelled(path, text, surrounding, rule)
    for name, make in DECOYS.items():
        for copy in range(DECOY_COPIES):
            files[f"clean{copy}/{name}"] = make(Maker(f"{SEED}/{name}/{copy}")).encode()
    return Corpus(files, labels)


def planted(rule: Rule, at: int) -> Iterator[tuple[Surrounding, str, str]]:
    """Yield surroundings, names and values for a rule; values that name themselves stand free as well."""
    if rule.example_path:
        for turn in range(NAMED_PER_RULE):
            text = expand(rule.examples[turn % len(rule.examples)].strip("\n"), f"corpus/{rule.id}/{turn}")
            yield Surrounding(f"{{n}}/{rule.example_path}", "{v}\n"), "block", text
        return
    rng = random.Random(f"{SEED}/{rule.id}")
    assigned = [text for text in rule.examples if ASSIGNED.fullmatch(text.strip())]
    named = [each for each in SURROUNDINGS if each.is_named]
    free = [each for each in SURROUNDINGS if not each.is_named]
    for turn in range(NAMED_PER_RULE if assigned else 0):
        text = expand(assigned[turn % len(assigned)].strip(), f"corpus/{rule.id}/{turn}")
        name, value = ASSIGNED.fullmatch(text).groups()  # type: ignore[union-attr]
        yield named[(at * NAMED_PER_RULE + turn * 7) % len(named)], rng.choice(PREFIXES) + name, value
    for turn in range(FREE_PER_RULE if assigned else 0):
        text = expand(assigned[turn % len(assigned)].strip(), f"corpus/{rule.id}/free/{turn}")
        name, value = ASSIGNED.fullmatch(text).groups()  # type: ignore[union-attr]
        if names_itself(rule, value):
            yield free[(at * FREE_PER_RULE + turn * 3) % len(free)], name, value
    others = [text for text in rule.examples if text not in assigned] or list(rule.examples)
    for turn in range(BLOCKS_PER_RULE * (1 if assigned else 3)):
        text = expand(others[turn % len(others)].strip("\n"), f"corpus/{rule.id}/block/{turn}")
        yield BLOCKS[(at * BLOCKS_PER_RULE + turn) % len(BLOCKS)], "block", text


def names_itself(rule: Rule, value: str) -> bool:
    """Return whether a secret is known by its own form, not by a name before it or a word nearby."""
    first = _CAPTURE.search(rule.regex or "")
    is_form = first is not None and first.start() <= _CAPTURE_MAX
    return is_form and any(keyword in value.lower() for keyword in rule.keywords)


def labelled(path: str, text: str, surrounding: Surrounding, rule: Rule) -> tuple[bytes, Label]:
    """Return the bytes of a file and the label of the secret that is marked in its text."""
    before, rest = text.split(OPEN)
    secret, after = rest.split(CLOSE)
    encoding = surrounding.encoding
    data = (before + secret + after).encode(encoding)
    start = len(before.encode(encoding))
    end = start + len(secret.encode(encoding.replace("utf-16", "utf-16-le")))
    first = before.count("\n") + 1
    provider = next((tag.removeprefix("provider:") for tag in rule.tags if tag.startswith("provider:")), "generic")
    return data, Label(path, start, end, first, first + secret.count("\n"), rule.id, provider, surrounding.path)
