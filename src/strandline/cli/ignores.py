"""What leaves findings out, as the commands take it: `.gitleaksignore` files and baselines."""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from strandline.detect import Baseline, Fingerprint, Ignores, parse_baseline, parse_ignore_file
from strandline.files import storage_errors
from strandline.findings.reports import Report
from strandline.pipeline.identity import TenantSecretKey

IGNORE_FILE = ".gitleaksignore"

IgnoreFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--ignore-file",
        metavar="FILE",
        help="Leave out what a .gitleaksignore names; by default those here and in the roots of what was scanned.",
    ),
]
Baselines = Annotated[
    list[Path] | None,
    typer.Option("--baseline", metavar="FILE", help="Leave out what a report of gitleaks or of ours knows already."),
]
NoIgnore = Annotated[bool, typer.Option("--no-ignore", help="Leave nothing out.")]


def load_ignores(
    key: TenantSecretKey,
    *,
    files: Sequence[Path] | None = None,
    baselines: Sequence[Path] | None = None,
    roots: Iterable[str] = (),
) -> Ignores:
    """Return all that leaves findings out; without `files`, those of the current folder and of the roots."""
    chosen = _default_files(roots) if files is None else files
    fingerprints: dict[Fingerprint, str] = {}
    for path in chosen:
        fingerprints = {**parse_ignore_file(_read(path), str(path)), **fingerprints}
    return Ignores(fingerprints, tuple(_baseline(path, key) for path in baselines or ()))


def tell_ignored(report: Report) -> None:
    """Say on standard error how many findings were left out, and why."""
    if report.ignored:
        counts = ", ".join(f"{count:,} by {reason}" for reason, count in report.ignored.items())
        print(f"left out: {counts} (--no-ignore shows them)", file=sys.stderr)


def _default_files(roots: Iterable[str]) -> list[Path]:
    folders = [Path.cwd(), *(Path(root) for root in roots if root)]
    return [path for path in dict.fromkeys(folder / IGNORE_FILE for folder in folders) if path.is_file()]


def _baseline(path: Path, key: TenantSecretKey) -> Baseline:
    return parse_baseline(_read(path), key, str(path))


def _read(path: Path) -> str:
    with storage_errors(path):
        return path.read_text(encoding="utf-8", errors="replace")
