"""Build the site of the documentation: the pages of this repository, and a reference made from docstrings.

`make docs` runs it. What always holds:

- every page under `docs/` is in the navigation, and every public package has a page of reference;
- reference pages are written from the list of packages, never by hand;
- nothing is fetched from the network, neither when the site is built nor when it is read.

Sources are gathered under `.site/pages`, and the site is written to `.site/html`; git ignores both.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
GUIDES = (
    "cli",
    "ci",
    "configuration",
    "sources",
    "findings",
    "detection",
    "spark",
    "cluster",
    "pipeline",
    "lake",
    "scale",
    "buckets",
    "folds",
    "artifacts",
    "broker",
    "objects",
    "lease",
    "replica",
    "metrics",
    "alarms",
    "ui",
)
PROJECT = ("glossary", "guarantees", "campaigns", "benchmarks", "performance", "seeds")
ROOT_PAGES = {"README.md": "index.md", "ARCHITECTURE.md": "", "CONTRIBUTING.md": "", "CHANGELOG.md": ""}
WITHOUT_REFERENCE = ("cli",)
"""Packages that users run and never import."""
WITHOUT_PARTS = ("broker",)
"""Packages whose sub-packages are their own affair."""

Nav = list[dict[str, "str | Nav"]]


def public_modules(package: Path) -> list[str]:
    """Return the dotted names that have a page of reference, parents before children."""
    names = []
    for path in sorted(package.iterdir()):
        if path.suffix == ".py" and path.stem != "__init__":
            names.append(f"{package.name}.{path.stem}")
        if not (path / "__init__.py").is_file() or path.name in WITHOUT_REFERENCE:
            continue
        names.append(f"{package.name}.{path.name}")
        if path.name not in WITHOUT_PARTS:
            inner = sorted(child.parent.name for child in path.glob("*/__init__.py"))
            names += [f"{package.name}.{path.name}.{child}" for child in inner]
    return names


def title(page: Path) -> str:
    """Return the first heading of a page, without marks of code; of a page that is missing, its name."""
    if not page.is_file():
        return page.stem
    found = re.search(r"^# (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return found[1].replace("`", "") if found else page.stem


def _folder(root: Path, name: str) -> Nav:
    pages = sorted((root / "docs" / name).glob("*.md"), key=lambda page: (page.stem != "README", page.stem))
    return [{title(page): f"{name}/{page.name}"} for page in pages]


def _reference(names: list[str]) -> Nav:
    nav: Nav = []
    for name in names:
        page = f"reference/{name}.md"
        if name.count(".") > 1:
            parent = nav[-1]
            [(over, inner)] = parent.items()
            children: Nav = inner if isinstance(inner, list) else [{over: inner}]
            nav[-1] = {over: [*children, {name.removeprefix("strandline."): page}]}
        else:
            nav.append({name.removeprefix("strandline."): page})
    return nav


def navigation(root: Path) -> Nav:
    """Return the navigation: guides in reading order, formats and decisions as they are listed, the reference."""
    named: Nav = [{title(root / "docs" / f"{name}.md"): f"{name}.md"} for name in GUIDES]
    project: Nav = [{title(root / "docs" / f"{name}.md"): f"{name}.md"} for name in PROJECT]
    rest: Nav = [{title(root / name): name} for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    return [
        {"Strandline": "index.md"},
        {"Guides": named},
        {"Reference": _reference(public_modules(root / "src" / "strandline"))},
        {"Formats": _folder(root, "formats")},
        {"Decisions": _folder(root, "decisions")},
        {"Project": [rest[0], *project, *rest[1:]]},
    ]


def listed(nav: Nav) -> set[str]:
    """Return the pages that a navigation names."""
    pages: set[str] = set()
    for entry in nav:
        for value in entry.values():
            pages |= {value} if isinstance(value, str) else listed(value)
    return pages


def problems(root: Path) -> list[str]:
    """Return what the navigation lacks, and what it names that does not exist."""
    pages = {str(page.relative_to(root / "docs")) for page in (root / "docs").rglob("*.md")}
    named = {page for page in listed(navigation(root)) if not page.startswith("reference/")}
    named -= {goal or page for page, goal in ROOT_PAGES.items()}
    lacking = [f"docs/{page} is in no list of tools/docs.py" for page in sorted(pages - named)]
    return lacking + [f"tools/docs.py lists docs/{page}, which does not exist" for page in sorted(named - pages)]


def gather(root: Path, pages: Path) -> None:
    """Write the sources of the site: pages of the repository with links that fit, and pages of reference."""
    shutil.copytree(root / "docs", pages)
    for name, goal in ROOT_PAGES.items():
        text = (root / name).read_text(encoding="utf-8").replace("](docs/", "](")
        (pages / (goal or name)).write_text(text, encoding="utf-8")
    (pages / "reference").mkdir()
    package = root / "src" / "strandline"
    for name in public_modules(package):
        (pages / "reference" / f"{name}.md").write_text(reference_page(package, name), encoding="utf-8")


def reference_page(package: Path, name: str) -> str:
    """Return the source of a page of reference: a directive, and one more for each name that a module hides.

    `strandline.spark.session` is a module and, imported by its package, the function in it: the first is found first.
    """
    folder = package.parent.joinpath(*name.split("."))
    directives = [f"::: {name}\n"]
    if (folder / "__init__.py").is_file():
        for public in _public_names(folder / "__init__.py"):
            module = folder / f"{public}.py"
            if module.is_file() and re.search(rf"^(?:def|class) {public}\b", module.read_text(), re.MULTILINE):
                directives.append(f"::: {name}.{public}.{public}\n    options:\n      heading_level: 2\n")
    return "\n".join(directives)


def _public_names(init: Path) -> list[str]:
    for node in ast.parse(init.read_text(encoding="utf-8")).body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value))
            case _:
                pass
    return []


def main() -> int:
    """Build the site; return mkdocs' exit code."""
    site = ROOT / ".site"
    shutil.rmtree(site, ignore_errors=True)
    site.mkdir()
    gather(ROOT, site / "pages")
    settings = {
        "INHERIT": "../mkdocs.yml",
        "docs_dir": "pages",
        "site_dir": "html",
        "nav": navigation(ROOT),
    }
    (site / "mkdocs.yml").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    mkdocs = Path(sys.executable).with_name("mkdocs")
    command = [str(mkdocs), "build", "--strict", "--quiet", "-f", str(site / "mkdocs.yml")]
    built = subprocess.run(command, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, check=False)
    if not built.returncode:
        print(f"Open {site / 'html' / 'index.html'}")
    return built.returncode


if __name__ == "__main__":
    sys.exit(main())
