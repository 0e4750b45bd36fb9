"""`tools/docs.py` finds pages that are in no list, and makes a reference of every public package."""

from pathlib import Path

from tools import docs


def page(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def site(root: Path) -> Path:
    """Write a repository that has all the pages that are listed by name."""
    for name in (*docs.GUIDES, *docs.PROJECT):
        page(root, f"docs/{name}.md", f"# The {name}\n")
    for name in docs.ROOT_PAGES:
        page(root, name, "# A page\n\n[the command line](docs/cli.md)\n")
    page(root, "src/strandline/__init__.py", "")
    return root


def test_a_page_that_is_not_listed_is_named(tmp_path: Path) -> None:
    page(site(tmp_path), "docs/tides.md", "# Tides\n")
    assert docs.problems(tmp_path) == ["docs/tides.md is in no list of tools/docs.py"]


def test_a_listed_page_that_is_missing_is_named(tmp_path: Path) -> None:
    (site(tmp_path) / "docs" / "cli.md").unlink()
    assert docs.problems(tmp_path) == ["tools/docs.py lists docs/cli.md, which does not exist"]


def test_formats_and_decisions_need_no_listing(tmp_path: Path) -> None:
    page(site(tmp_path), "docs/formats/tides.md", "# The format of `tides`\n")
    assert {"The format of tides": "formats/tides.md"} in docs.navigation(tmp_path)[3]["Formats"]
    assert not docs.problems(tmp_path)


def test_parts_stand_below_their_package_and_a_function_that_its_module_hides_is_shown(tmp_path: Path) -> None:
    package = site(tmp_path) / "src" / "strandline"
    page(package, "tides/__init__.py", '"""Tides."""\n\n__all__ = ["height", "moon"]\n')
    page(package, "tides/height.py", "def height() -> int: ...\n")
    page(package, "tides/ebb/__init__.py", "")
    assert docs.public_modules(package) == ["strandline.tides", "strandline.tides.ebb"]
    assert docs.navigation(tmp_path)[2]["Reference"] == [
        {"tides": [{"tides": "reference/strandline.tides.md"}, {"tides.ebb": "reference/strandline.tides.ebb.md"}]}
    ]
    assert "::: strandline.tides.height.height" in docs.reference_page(package, "strandline.tides")


def test_links_of_the_front_page_fit_the_site(tmp_path: Path) -> None:
    docs.gather(site(tmp_path), tmp_path / "pages")
    assert "[the command line](cli.md)" in (tmp_path / "pages" / "index.md").read_text()
