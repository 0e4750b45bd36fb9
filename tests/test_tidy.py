"""The repository keeps its own habits: documented, listed, locked, and free of the machine it was written on."""

import importlib
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from tests import tidy_rules as rules
from tools import docs

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "strandline"
MODULES = sorted(path for folder in ("src", "tests", "benchmarks", "tools") for path in (ROOT / folder).rglob("*.py"))
LIBRARY = [path for path in MODULES if PACKAGE in path.parents]
INITS = [path for path in LIBRARY if path.name == "__init__.py"]
LOCKS = ["requirements.lock", "requirements-java.lock"]


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def problems(rule: Callable[[str], list[str]], paths: Iterable[Path]) -> list[str]:
    return [f"{path.relative_to(ROOT)}: {found}" for path in paths for found in rule(path.read_text(errors="replace"))]


def kept_files() -> list[Path]:
    """Return what git tracks or would track; outside a git checkout, nothing."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    try:
        listed = subprocess.run(command, check=True, capture_output=True).stdout.decode()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"git cannot list the files: {error}")
    return [path for name in listed.split("\0") if name and (path := ROOT / name).is_file()]


def test_every_module_has_a_docstring() -> None:
    assert not problems(rules.undocumented_module, MODULES)


def test_nothing_prints_outside_the_command_line() -> None:
    assert not problems(rules.prints, [path for path in LIBRARY if PACKAGE / "cli" not in path.parents])


def test_every_package_lists_its_public_names_and_holds_no_logic() -> None:
    assert not problems(rules.init_problems, INITS)


@pytest.mark.parametrize("path", INITS, ids=lambda path: path.parent.name)
def test_every_public_name_exists_and_is_documented(path: Path) -> None:
    name = ".".join(path.parent.relative_to(PACKAGE.parent).parts)
    assert not rules.undocumented_names(importlib.import_module(name))


@pytest.mark.parametrize("name", LOCKS)
def test_lock_files_hold_names_versions_and_hashes_only(name: str) -> None:
    assert read(name)
    assert not rules.lock_problems(read(name))


def test_no_test_waits_less_than_a_minute_for_what_has_to_come() -> None:
    assert not problems(rules.short_limits, [path for path in MODULES if ROOT / "tests" in path.parents])


def test_helpers_are_not_imported_from_other_tests() -> None:
    assert not problems(rules.imported_tests, MODULES)


def test_no_test_says_how_many_examples_are_tried_whatever_the_profile() -> None:
    helpers = {ROOT / "tests" / name for name in ("conftest.py", "test_effort.py", "test_tidy_rules.py")}
    tests = [path for path in MODULES if ROOT / "tests" in path.parents and path not in helpers]
    assert not problems(rules.fixed_examples, tests)


def test_the_lock_covers_what_the_project_asks_for() -> None:
    assert not rules.lock_gaps(read("pyproject.toml"), read("requirements.lock"))


def test_no_file_names_the_machine_it_was_written_on() -> None:
    assert not problems(rules.foreign_text, kept_files())


def test_no_page_imports_the_command_line() -> None:
    assert not problems(rules.cli_imports, [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def sources_of_tests() -> dict[str, str]:
    return {str(path.relative_to(ROOT / "tests")): path.read_text() for path in (ROOT / "tests").rglob("*.py")}


def test_every_guarantee_names_a_test_that_exists() -> None:
    assert not rules.guarantee_problems(read("docs/guarantees.md"), sources_of_tests())


def test_no_guarantee_is_given_twice() -> None:
    assert not rules.repeated_guarantees(read("docs/guarantees.md"))


def test_every_decision_is_listed_once_in_order() -> None:
    files = {path.name for path in (ROOT / "docs" / "decisions").glob("*.md")} - {"README.md"}
    assert not rules.decision_problems(read("docs/decisions/README.md"), files)


@pytest.mark.parametrize("page", ["docs/guarantees.md", "README.md"])
def test_a_guarantee_is_marked_as_its_test_is(page: str) -> None:
    assert not rules.guarantee_mark_problems(read(page), sources_of_tests())


def test_the_rows_of_the_readme_are_marked_as_those_of_the_guarantees() -> None:
    def marks(page: str) -> dict[str, bool]:
        rows = [row for row in read(page).splitlines() if row.startswith("|")]
        return {found[0]: "*(" in row for row in rows if (found := rules.TEST_REFERENCE.search(row))}

    listed = marks("docs/guarantees.md")
    assert not {test for test, mark in marks("README.md").items() if listed.get(test) is not mark}


def test_the_architecture_page_tells_packages_that_exist_from_planned_ones() -> None:
    assert not rules.architecture_problems(read("ARCHITECTURE.md"), package_names())


def package_names() -> set[str]:
    names = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/*.py")}
    return names - {"__init__", "__main__"}


def module_names() -> set[str]:
    """Return the dotted names of modules and packages below `strandline`, and those beside it by their full names."""
    below = {".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__") for path in LIBRARY}
    return below | {"strandline", "pyspark_strandline", "pytest_strandline"}


def test_sentences_of_code_and_documents_have_a_subject_of_the_field() -> None:
    pages = [path for path in kept_files() if path.suffix == ".md" and ROOT / "tests" not in path.parents]
    assert not problems(rules.people, [*LIBRARY, *pages])


def test_modules_are_called_by_what_they_hold() -> None:
    names = {str(path.relative_to(ROOT)) for path in LIBRARY} | {str(path.parent.relative_to(ROOT)) for path in INITS}
    assert not rules.private_names(sorted(names))


def test_the_front_page_draws_the_packages_that_exist() -> None:
    assert not rules.layer_problems(read("README.md"), package_names())


def test_the_walks_through_the_code_name_modules_that_exist() -> None:
    assert not rules.walk_problems(read("ARCHITECTURE.md"), module_names())


def test_every_guarantee_names_a_module_that_exists() -> None:
    assert not rules.unknown_keepers(read("docs/guarantees.md"), module_names())


def test_the_changelog_has_an_unreleased_section() -> None:
    assert not rules.changelog_problems(read("CHANGELOG.md"))


def test_every_page_of_the_documentation_is_in_its_navigation() -> None:
    assert not docs.problems(ROOT)


def test_every_package_but_the_command_line_has_a_page_of_reference() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"cli"}
    assert {f"reference/strandline.{name}.md" for name in packages} <= docs.listed(docs.navigation(ROOT))
