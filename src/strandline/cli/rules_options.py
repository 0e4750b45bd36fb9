"""What the commands about rules share: the rules, an engine that keeps nothing, and the file to look at.

Invariant: the engine's key is random and ends with the process, so no hash of a secret outlives a command.
"""

import secrets
import sys
from pathlib import Path
from typing import Annotated

import typer

from strandline.cli.scan import rules_file, rules_of
from strandline.detect import Engine, Limits, RuleSet
from strandline.errors import InvalidInput
from strandline.extras import require
from strandline.files import storage_errors
from strandline.pipeline.identity import TenantSecretKey
from strandline.scan.worker.engine_cache import engine_for

STDIN = "-"
RulesFile = Annotated[
    Path | None,
    typer.Option(
        "--rules",
        metavar="FILE|builtin",
        help="Rules file in the TOML of gitleaks; by default the nearest .gitleaks.toml, else the built-in rules.",
    ),
]
Name = Annotated[
    str, typer.Option("--name", metavar="PATH", help="Path that rules see, for standard input or in place of FILE.")
]
OnlyRules = Annotated[list[str] | None, typer.Option("--rule", metavar="ID", help="Only these rules.")]


def chosen_rules(given: Path | None, only: list[str] | None = None) -> RuleSet:
    """Return the rules that a scan would use, or some of them."""
    rules = rules_of(rules_file(given))
    return rules.only(only) if only else rules


def engine_of(rules: RuleSet, *, allow_comments: bool = True) -> Engine:
    """Return an engine of rules, under a key of its own."""
    require("scan", "hyperscan")
    return engine_for(rules, Limits(allow_comments=allow_comments), TenantSecretKey(secrets.token_bytes(32)))


def read_input(file: str) -> bytes:
    """Return the bytes of a file, or of standard input for `-`."""
    if file == STDIN:
        return sys.stdin.buffer.read()
    path = Path(file)
    if path.is_dir():
        raise InvalidInput(f"{file} is a folder", hint="give one file; `strandline scan` takes folders")
    with storage_errors(path):
        return path.read_bytes()
