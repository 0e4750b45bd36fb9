"""Each tidy rule is shown able to fail: what is bad is reported, and its good twin is not."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import pytest

from tests import tidy_rules as rules

DIGEST = "0" * 64
GOOD_LOCK = f"name==1.0 \\\n    --hash=sha256:{DIGEST} \\\n    --hash=sha256:{DIGEST}\n"
MARKED_LOCK = f"name==1.0 ; python_version < '3.12' \\\n    --hash=sha256:{DIGEST}\n"


@pytest.mark.parametrize(
    ("rule", "bad", "good"),
    [
        (rules.undocumented_module, "x = 1", '"""Doc."""\nx = 1'),
        (rules.prints, "def f():\n    print(1)", "def f():\n    say.print(1)  # print(1)"),
        (rules.init_problems, '"""Doc."""', '"""Doc."""\n__all__ = []'),
        (rules.init_problems, "__all__ = []\ndef f(): ...", "from a import f\n__all__ = ['f']"),
        (rules.init_problems, "__all__ = []\nx = 1", "__all__ = ['__version__']\n__version__ = '1'"),
        (rules.init_problems, "from a import f, g\n__all__ = ['f']", "from a import f, g\n__all__ = ['f', 'g']"),
        (rules.init_problems, "__all__ = []\nf()", "from a import r as _require\n__all__ = []\n_require('a', 'b')"),
        (rules.imported_tests, "from tests.queue.test_queue import make", "from tests.queue.helpers import make"),
        (rules.imported_tests, "from tests.queue import test_queue", "from tests.queue import testing_ground"),
        (rules.fixed_examples, "@settings(max_examples=40)", "@examples(40)"),
        (rules.lock_problems, "name==1.0\n", GOOD_LOCK),
        (rules.lock_problems, f"name==1.0 \\\n{GOOD_LOCK}", MARKED_LOCK),
        (rules.lock_problems, "--extra-index-url somewhere\n" + GOOD_LOCK, GOOD_LOCK),
        (rules.lock_problems, "--find-links wheels\n" + GOOD_LOCK, GOOD_LOCK),
        (rules.lock_problems, GOOD_LOCK.replace("==1.0", " @ https://example.org/name.whl"), GOOD_LOCK),
        (rules.lock_problems, GOOD_LOCK.replace("==1.0", " @ file:///wheels/name.whl"), GOOD_LOCK),
        (rules.lock_problems, GOOD_LOCK.replace("name==1.0", "./wheels/name.whl"), GOOD_LOCK),
        (rules.lock_problems, GOOD_LOCK.replace("sha256", "md5"), GOOD_LOCK),
        (rules.foreign_text, "cd /" + "home/somebody", "cd home/somebody"),
        (rules.cli_imports, "from strandline.cli.state import open_state", "src/strandline/cli/ holds the commands"),
        (rules.foreign_text, "file:///" + "work/here", "https://example.org/docs"),
        (rules.foreign_text, "https:" + "//mirror.example.org/simple/numpy", "https://example.org/simply"),
        (rules.short_limits, "subprocess.run(command, timeout=30)", "subprocess.run(command, timeout=PATIENCE_S)"),
        (rules.short_limits, "child.communicate(timeout=5)", "child.communicate(timeout=60)"),
        (rules.short_limits, "event.wait(10)", "event.wait(0.1)"),
        (rules.short_limits, "asyncio.wait_for(task, 20)", "world.wait(20)"),
        (rules.short_limits, "end = time.monotonic() + 30", "end = time.monotonic() + PATIENCE_S"),
        (rules.short_limits, "assert time.monotonic() - began < 5", "assert time.monotonic() - began > 5"),
        (rules.changelog_problems, "# Changelog\n\n## 0.1.0\n", "# Changelog\n\n## Unreleased\n"),
    ],
)
def test_a_rule_reports_the_bad_and_passes_the_good(rule: Callable[[str], list[str]], bad: str, good: str) -> None:
    assert rule(bad)
    assert not rule(good)


def module_with(**names: object) -> ModuleType:
    module = ModuleType("example")
    module.__dict__.update(names, __all__=list(names))
    return module


def test_public_names_must_exist_and_be_documented() -> None:
    class Good:
        """Documented."""

        def method(self) -> None:
            """Documented."""

        def _private(self) -> None: ...

    class Bare: ...

    class BareMethod:
        """Documented."""

        def method(self) -> None: ...

        @property
        def value(self) -> int:
            return 1

    @dataclass
    class BareData:
        value: int

    def bare() -> None: ...

    assert not rules.undocumented_names(module_with(Good=Good, LIMIT=1))
    assert rules.undocumented_names(module_with(Bare=Bare)) == ["Bare has no docstring"]
    assert rules.undocumented_names(module_with(BareData=BareData)) == ["BareData has no docstring"]
    assert len(rules.undocumented_names(module_with(BareMethod=BareMethod))) == 2
    assert rules.undocumented_names(module_with(bare=bare)) == ["bare has no docstring"]
    absent = module_with()
    absent.__dict__["__all__"] = ["absent"]
    assert rules.undocumented_names(absent) == ["absent is listed but does not exist"]


@pytest.mark.parametrize("asked", ["other>=1", "name>=2", "name<1"])
def test_a_dependency_that_is_not_locked_is_reported(asked: str) -> None:
    project = '[project]\nname = "ours"\ndependencies = ["{}"]\noptional-dependencies.part = ["{}"]\n'
    assert not rules.lock_gaps(project.format("name>=1", "name"), GOOD_LOCK)
    assert rules.lock_gaps(project.format(asked, "name"), GOOD_LOCK)
    assert rules.lock_gaps(project.format("name", asked), GOOD_LOCK)


def test_an_extra_that_names_an_unknown_extra_of_the_project_is_reported() -> None:
    project = '[project]\nname = "ours"\ndependencies = []\noptional-dependencies.all = ["ours[{}]"]\n'
    assert not rules.lock_gaps(project.format("all"), GOOD_LOCK)
    assert rules.lock_gaps(project.format("parts"), GOOD_LOCK) == ["ours[parts]: there is no extra parts"]


def test_a_guarantee_without_an_existing_test_is_reported() -> None:
    head = "| promise | module | test |\n|---|---|---|\n"
    tests = {
        "a/test_a.py": "def test_one(): ...\nclass TestTwo:\n    def test_three(self): ...\nTestFour = M.TestCase\n"
    }
    for good in ("test_one", "TestTwo", "TestTwo::test_three", "TestFour"):
        assert not rules.guarantee_problems(f"{head}| p | m | `tests/a/test_a.py::{good}` |\n", tests)
    for bad in ("tests/a/test_a.py::test_gone", "tests/gone.py::test_one", "tests/a/test_a.py::TestTwo::gone", "none"):
        assert rules.guarantee_problems(f"{head}| p | m | `{bad}` |\n", tests)


def test_a_guarantee_that_is_given_twice_is_reported() -> None:
    head = "| promise | module | test |\n|---|---|---|\n| One holds | m | `a::b` |\n"
    assert not rules.repeated_guarantees(f"{head}| Two hold | m | `a::c` |\n")
    assert rules.repeated_guarantees(f"{head}| one holds *(long)* | m | `a::c` |\n") == ["repeated: one holds"]
    assert rules.repeated_guarantees(f"{head}| Two hold | m | `a::b` |\n") == ["repeated: `a::b`"]


def test_a_decision_that_is_missing_repeated_or_out_of_order_is_reported() -> None:
    one, two = "| [0001](0001-a.md) | A | accepted |\n", "| [0002](0002-b.md) | B | accepted |\n"
    files = {"0001-a.md", "0002-b.md"}
    assert not rules.decision_problems(one + two, files)
    assert rules.decision_problems(two + one, files) == ["not in the order of numbers"]
    assert rules.decision_problems(one + one + two, files) == ["listed twice: 0001-a.md"]
    assert rules.decision_problems(one, files) == ["listed or there, and not both: 0002-b.md"]
    assert rules.decision_problems(one + two.replace("[0002]", "[0003]"), files) == ["0003 leads to 0002-b.md"]


def test_a_guarantee_that_is_marked_otherwise_than_its_test_is_reported() -> None:
    tests = {
        "test_a.py": """
def test_all(): ...
@pytest.mark.long
def test_long(): ...
@pytest.mark.parametrize("n", [1, pytest.param(2, marks=[pytest.mark.long, pytest.mark.timeout(9)])])
def test_some(n): ...
@parts(3)
def test_first(part): ...
@pytest.mark.campaign("soak")
def test_hours(): ...
@pytest.mark.long
class TestLong:
    def test_one(self): ...
TestMachine = pytest.mark.long(pytest.mark.timeout(900)(Machine.TestCase))
""",
        "test_b.py": "pytestmark = pytest.mark.long\ndef test_one(): ...",
    }
    for test, allowed in {
        "test_a.py::test_all": ("", " *(sampled)*"),
        "test_a.py::test_long": (" *(long)*",),
        "test_a.py::test_some": (" *(sampled)*",),
        "test_a.py::test_first": (" *(sampled)*",),
        "test_a.py::test_hours": (" *(campaign)*",),
        "test_a.py::TestLong::test_one": (" *(long)*",),
        "test_a.py::TestMachine": (" *(long)*",),
        "test_b.py::test_one": (" *(long)*",),
    }.items():
        for mark in ("", " *(sampled)*", " *(long)*", " *(campaign)*"):
            row = f"| p{mark} | m | `tests/{test}` |"
            assert bool(rules.guarantee_mark_problems(row, tests)) is (mark not in allowed), row


def test_a_package_marked_wrongly_or_missing_is_reported() -> None:
    page = "| `journal` | promise | here |\n| `queue` | promise | planned |\n"
    assert not rules.architecture_problems(page, {"journal"})
    assert rules.architecture_problems(page, {"journal", "queue"}) == ["queue is marked planned"]
    assert rules.architecture_problems(page, set()) == ["journal is marked here"]
    assert rules.architecture_problems(page, {"journal", "groups"}) == ["groups is missing"]


def test_the_layers_of_the_front_page_are_the_packages_that_exist() -> None:
    page = "# Tides\n\n## Layers\n\nDrawn:\n\n```\ncli\njournal · wire\n```\n"
    assert not rules.layer_problems(page, {"cli", "journal", "wire", "sim", "testing"})
    assert rules.layer_problems(page, {"cli", "journal", "moon"}) == [
        "moon is in no line of the layers",
        "wire is drawn, and does not exist",
    ]


def test_a_walk_names_modules_that_exist() -> None:
    page = "## Four walks\n\n1. `journal.writer`: one write\n2. `journal.tide`: none\n\n## More\n\n1. `other`\n"
    assert rules.walk_problems(page, {"journal.writer"}) == ["no such module: journal.tide"]
    assert not rules.walk_problems(page, {"journal.writer", "journal.tide"})
    assert rules.walk_problems("", set()) == ["there are no walks"]


def test_a_guarantee_names_the_module_that_keeps_it() -> None:
    page = "| promise | kept by | shown by |\n|---|---|---|\n| A | `journal.writer`, `tide` | `tests/a.py::test_b` |\n"
    assert rules.unknown_keepers(page, {"journal.writer"}) == ["no such module: tide"]
    assert not rules.unknown_keepers(page, {"journal.writer", "tide"})


def test_people_and_private_names_are_named() -> None:
    assert rules.people("A caller waits.\nWhoever waits is told.") == ["line 2 says 'Whoever'"]
    assert not rules.people("A caller waits for the body of a message.")
    assert rules.private_names(["src/a/shelf.py", "src/a/record_cache.py", "src/a/mending"]) == [
        "src/a/shelf.py: name it by what it holds",
        "src/a/mending: name it by what it holds",
    ]
