"""The rules of `test_tidy.py`, as pure functions from text to a list of problems."""

import ast
import inspect
import re
import tokenize
import tomllib
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from functools import lru_cache
from io import StringIO
from types import ModuleType

from packaging.requirements import Requirement

FIXED_EXAMPLES = re.compile(r"\bmax_examples=\d")
IMPORTS_TESTS = re.compile(
    r"^(?:from (tests[\w.]*\.test_\w+) import|from tests[\w.]* import (?:.*\b)?(test_\w+))", re.MULTILINE
)
LOCKED = re.compile(r"^([a-z0-9-]+)==([\w.]+)(?: ; ([^\\]+?))? \\$")
HASH = re.compile(r"^    --hash=sha256:[0-9a-f]{64}(?: \\)?$")
FOREIGN = {
    "a path of somebody's machine": re.compile(r"(?<![\w.])/(?:work|root|home)/"),
    "the address of a package index": re.compile(
        r"(?:https?|file)://\S*(?:pypi|pythonhosted|artifactory|codeartifact|devpi|nexus|/simple\b)"
    ),
}
GUARANTEE_MARK = re.compile(r"^\| [^|]* \*\((sampled|long|campaign)\)\* \|")
LONG, CAMPAIGN = "pytest.mark.long", "pytest.mark.campaign"
PARTS = "parts"  # of `tests.effort`: all but the first are long
_BLANK = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING}
TEST_REFERENCE = re.compile(r"tests/([\w/]+\.py)((?:::\w+)+)")


def undocumented_module(source: str) -> list[str]:
    """Every module opens with a docstring."""
    words = (word for word in tokenize.generate_tokens(StringIO(source).readline) if word.type not in _BLANK)
    first = next(words)  # to parse the rest of a thousand modules would take seconds
    is_text = first.type == tokenize.STRING and isinstance(text := ast.literal_eval(first.string), str) and text.strip()
    return [] if is_text else ["the module has no docstring"]


def prints(source: str) -> list[str]:
    """A library does not print."""
    if "print" not in source:
        return []  # to parse hundreds of modules would take seconds
    calls = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [f"line {c.lineno} prints" for c in calls if isinstance(c.func, ast.Name) and c.func.id == "print"]


def _only_imports(lines: list[ast.stmt]) -> bool:
    return all(isinstance(line, ast.ImportFrom) for line in lines)


def init_problems(source: str) -> list[str]:
    """`__init__.py` lists the public names and holds nothing but imports, `__all__` and `__version__`.

    `__getattr__` (`strandline.lazy_imports`) imports too, later, and shows the type checker what; `_require` names the
    package's extra.
    """
    listed: set[str] | None = None
    imported: set[str] = set()
    problems = []
    for node in ast.parse(source).body:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                pass
            case ast.Expr(value=ast.Call(func=ast.Name(id="_require"))):
                pass
            case ast.Import() | ast.ImportFrom():
                imported |= {(alias.asname or alias.name) for alias in node.names}
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                listed = set(ast.literal_eval(value))
            case ast.Assign(targets=[ast.Name(id="__version__" | "__getattr__")]):
                pass
            case ast.If(test=ast.Name(id="_TYPE_CHECKING"), body=body, orelse=[]) if _only_imports(body):
                imported |= {alias.name for line in body if isinstance(line, ast.ImportFrom) for alias in line.names}
            case _:
                problems.append(f"line {node.lineno} is logic; an __init__.py only imports and lists")
    if listed is None:
        return [*problems, "there is no __all__"]
    unlisted = {name for name in imported if not name.startswith("_")} - listed
    return [*problems, *(f"{name} is imported but not in __all__" for name in sorted(unlisted))]


def undocumented_names(module: ModuleType) -> list[str]:
    """Every name of `__all__` exists; classes, functions and public methods are documented."""
    problems = []
    for name in module.__all__:
        if not hasattr(module, name):
            problems.append(f"{name} is listed but does not exist")
            continue
        value = getattr(module, name)
        if inspect.isclass(value):
            problems += [f"{name}{part} has no docstring" for part in _undocumented_parts(value)]
        elif inspect.isroutine(value) and not inspect.getdoc(value):
            problems.append(f"{name} has no docstring")
    return problems


def _undocumented_parts(cls: type) -> Iterator[str]:
    # Dataclasses and named tuples write "Name(field, …)" for themselves, which documents nothing.
    if not cls.__doc__ or cls.__doc__.startswith(f"{cls.__name__}("):
        yield ""
    for name, member in vars(cls).items():
        is_method = inspect.isroutine(member) or isinstance(member, property)
        if is_method and not name.startswith("_") and not inspect.getdoc(getattr(cls, name)):
            yield f".{name}"


def lock_problems(text: str) -> list[str]:
    """A lock file holds names, versions and sha256 only: no address, path or option."""
    problems = []
    lines = text.splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if LOCKED.match(line):
            if not HASH.match(following):
                problems.append(f"no sha256 follows: {line}")
        elif not HASH.match(line):
            problems.append(f"neither a pinned name nor a sha256: {line}")
    return problems


def lock_gaps(pyproject: str, lock: str) -> list[str]:
    """Each dependency that `pyproject.toml` asks for, of any extra, is locked at a version that it allows."""
    project = tomllib.loads(pyproject)["project"]
    locked: dict[str, list[str]] = {}
    for match in filter(None, map(LOCKED.match, lock.splitlines())):
        locked.setdefault(match[1], []).append(match[2])
    problems = []
    extras = project["optional-dependencies"]
    for text in [*project["dependencies"], *(text for listed in extras.values() for text in listed)]:
        wanted = Requirement(text)
        if wanted.name == project["name"]:
            problems += [f"{text}: there is no extra {name}" for name in sorted(wanted.extras - set(extras))]
            continue
        versions = locked.get(wanted.name, [])
        if not versions or not all(wanted.specifier.contains(version) for version in versions):
            problems.append(f"{text} is locked as {versions or 'nothing'}; run `make lock`")
    return problems


def foreign_text(text: str) -> list[str]:
    """Nothing in the repository names the machine it was written on."""
    return [f"{what}: {found[0]}" for what, pattern in FOREIGN.items() for found in pattern.finditer(text)]


def cli_imports(text: str) -> list[str]:
    """No page tells users to import the command line: it is no library."""
    pattern = r"(?:from|import) strandline\.cli\b[.\w]*|from strandline import cli\b"
    return [f"says {found}" for found in re.findall(pattern, text)]


def guarantee_problems(text: str, tests: Mapping[str, str]) -> list[str]:
    """Each row of the table of guarantees names a test, and each test named exists; `tests` is source by path."""
    rows = [line for line in text.splitlines() if line.startswith("|")][2:]
    problems = [f"no test is named: {row}" for row in rows if not TEST_REFERENCE.search(row)]
    for path, names in sorted(TEST_REFERENCE.findall(text)):
        if path not in tests or not _defines(_parsed(tests[path]), names.split("::")[1:]):
            problems.append(f"no such test: tests/{path}{names}")
    return problems


@lru_cache(maxsize=1)
def _parsed(source: str) -> ast.Module:
    """Return the tree of a module; that of the last one is kept, for its tests are asked for one after another."""
    return ast.parse(source)


def repeated_guarantees(text: str) -> list[str]:
    """No promise of the table of guarantees is made twice, and no test shows two of them."""
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")][2:]
    promises = Counter(re.sub(r" \*\(\w+\)\* *$", "", row[1]).strip().casefold() for row in rows)
    tests = Counter(row[3].strip() for row in rows)
    return [f"repeated: {each}" for each, times in (promises + tests).items() if times > 1]


def decision_problems(text: str, files: Collection[str]) -> list[str]:
    """The list of decisions has each file once, in the order of its number."""
    rows: list[tuple[str, str]] = re.findall(r"^\| \[(\d{4})\]\(([^)]+)\)", text, re.MULTILINE)
    listed = [name for _, name in rows]
    problems = [f"{number} leads to {name}" for number, name in rows if not name.startswith(f"{number}-")]
    problems += [f"listed twice: {name}" for name, times in Counter(listed).items() if times > 1]
    problems += [f"listed or there, and not both: {name}" for name in sorted(set(listed) ^ set(files))]
    return problems + ([] if listed == sorted(listed) else ["not in the order of numbers"])


def guarantee_mark_problems(text: str, tests: Mapping[str, str]) -> list[str]:
    """A promise says that it is sampled or long if its test is: a case, or all of it, is left to `make test-long`."""
    problems = []
    rows = [(found, row) for row in text.splitlines() if row.startswith("|") and (found := TEST_REFERENCE.search(row))]
    for found, row in sorted(rows, key=lambda each: each[0][1]):
        if found[1] not in tests:
            continue
        marked = GUARANTEE_MARK.search(row)
        runs = _runs(_parsed(tests[found[1]]), found[2].split("::")[1:])
        mark = marked[1] if marked else None
        if runs != mark and (runs is not None or mark != "sampled"):
            problems.append(f"marked {mark}, and its test is {runs or 'not'}: {row}")
    return problems


def _runs(tree: ast.Module, names: list[str]) -> str | None:
    """Return "long" or "campaign" if `make test` leaves a test out, "sampled" if only some of its cases, else None."""
    body, is_sampled = tree.body, False
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id="pytestmark")], value=value) if _says_long(value):
                return "long"
            case _:
                pass
    for name in names:
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef() if node.name == name:
                    if any(ast.unparse(each) == LONG for each in node.decorator_list):
                        return "long"
                    if any(ast.unparse(each).startswith(CAMPAIGN) for each in node.decorator_list):
                        return "campaign"
                    is_sampled = is_sampled or any(map(_says_long, node.decorator_list))
                    body = node.body
                    break
                case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name and _says_long(value):
                    return "long"
                case _:
                    pass
    return "sampled" if is_sampled else None


def _says_long(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == PARTS:
        return True
    return any(ast.unparse(part) == LONG for part in ast.walk(node) if isinstance(part, ast.Attribute))


def _defines(tree: ast.Module | ast.ClassDef, names: list[str]) -> bool:
    for node in tree.body:
        match node:
            case ast.ClassDef(name=name) if name == names[0]:
                return len(names) == 1 or _defines(node, names[1:])
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if [name] == names:
                return True
            case ast.Assign(targets=[ast.Name(id=name)]) if name == names[0]:
                return True  # a state machine of hypothesis: TestJournal = JournalMachine.TestCase
            case _:
                pass
    return False


def architecture_problems(text: str, existing: Collection[str]) -> list[str]:
    """The table of packages says "here" of those that exist and "planned" of the others."""
    states = dict(re.findall(r"^\| `(\w+)` \|.*\| (here|planned) \|$", text, re.MULTILINE))
    wrong = [f"{name} is marked {state}" for name, state in states.items() if (state == "here") != (name in existing)]
    return wrong + [f"{name} is missing" for name in sorted(set(existing) - set(states))]


_PEOPLE = re.compile(r"\b(?:(?:some|any|every|no)body|(?:some|any|no )one|whoever)\b", re.IGNORECASE)
_PRIVATE_WORDS = {
    "begun",
    "beside",
    "carried",
    "delivering",
    "errands",
    "following",
    "front",
    "gate",
    "here",
    "holding",
    "judging",
    "keeper",
    "leaving",
    "listening",
    "loading",
    "looking",
    "mended",
    "mending",
    "places",
    "pulling",
    "reading",
    "readable",
    "repairing",
    "reserving",
    "restoring",
    "returning",
    "scanning",
    "sending",
    "settling",
    "shelf",
    "surroundings",
    "tellings",
    "turn",
    "upkeep",
    "vouched",
    "watching",
    "writing",
}
"""Names that modules once had: activities, and words that the field does not use."""


def people(text: str) -> list[str]:
    """A sentence about machines has no "somebody" in it: its subject is a caller, a process, a worker, a reader."""
    return [f"line {text.count(chr(10), 0, found.start()) + 1} says {found[0]!r}" for found in _PEOPLE.finditer(text)]


def private_names(paths: Collection[str]) -> list[str]:
    """A module is called by the noun that it holds."""
    named = [(path, path.rpartition("/")[2].removesuffix(".py")) for path in paths]
    return [f"{path}: name it by what it holds" for path, stem in named if stem in _PRIVATE_WORDS]


def layer_problems(text: str, existing: Collection[str]) -> list[str]:
    """The layers that the front page draws are the packages that exist, each once; `testing` and `sim` stand beside."""
    drawn = re.search(r"^## Layers\n.*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"\w+", drawn[1]) if drawn else []
    missing = [
        f"{name} is in no line of the layers" for name in sorted(set(existing) - {"testing", "sim"} - set(named))
    ]
    return missing + [f"{name} is drawn, and does not exist" for name in named if name not in existing]


def walk_problems(text: str, modules: Collection[str]) -> list[str]:
    """Each module that the walks through the code name exists; `modules` are dotted names below `strandline`."""
    walks = re.search(r"^## Four walks$(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    named = re.findall(r"^\d+\. `([\w.]+)`", walks[1], re.MULTILINE) if walks else []
    return [f"no such module: {name}" for name in named if name not in modules] or (
        [] if named else ["there are no walks"]
    )


def unknown_keepers(text: str, modules: Collection[str]) -> list[str]:
    """The module that keeps a promise, named in the second column of the table of guarantees, exists."""
    rows = [line.split("|") for line in text.splitlines() if line.startswith("|")][2:]
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row[2])]
    return [f"no such module: {name}" for name in named if name not in modules]


def changelog_problems(text: str) -> list[str]:
    """The changelog has a place for what is not released yet."""
    return [] if re.search(r"^## Unreleased$", text, re.MULTILINE) else ["there is no '## Unreleased' section"]


def imported_tests(source: str) -> list[str]:
    """No module imports another's tests: helpers that several use have a module of their own."""
    found = IMPORTS_TESTS.finditer(source)
    return [f"{match[1] or match[2]} holds tests: move what is shared into a module of its own" for match in found]


def fixed_examples(source: str) -> list[str]:
    """No test says how many examples hypothesis tries whatever the profile: `tests.effort.examples` multiplies."""
    lines = enumerate(source.splitlines(), 1)
    return [f"line {number}: take tests.effort.examples" for number, line in lines if FIXED_EXAMPLES.search(line)]


_PATIENT_CALLS = {"run", "check_output", "check_call", "communicate", "create_connection", "HTTPConnection", "get"}
_WAITS = {"result", "join", "wait", "timeout"}
_CLOCKS = {"monotonic", "perf_counter", "time"}
_BRIEF_S, _PATIENT_S = 2, 60
_VIRTUAL = {"world"}
"""Names of what has a clock of its own."""
_MAY_LIMIT = re.compile(
    r"\b(?:result|join|wait|timeout)\(\s*\d|\btimeout=\s*\d"
    r"|(?:monotonic|perf_counter|time)\(\)\s*(?:\+\s*\d|-[^<]*<[^<]*?\d)"
    r"|\bwait_for\((?=[\s\S]*,\s*\d[\d_.]*[\s,]*\))"
)
"""What stands wherever a limit is a number: to parse all tests would take seconds."""


def short_limits(source: str) -> list[str]:
    """A test waits for an event for a minute at the least: less fails on a machine that is slow or busy.

    Up to two seconds are no limit: a test that nothing happens has to end.
    """
    if not _MAY_LIMIT.search(source):
        return []
    nodes = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call | ast.BinOp | ast.Compare))
    limits = (limit for node in nodes for limit in _limits(node))
    short = (limit for limit in limits if isinstance(limit, ast.Constant) and _is_short(limit.value))
    return [f"line {limit.lineno} waits for {limit.value!r} s: take tests.waiting.PATIENCE_S" for limit in short]


def _is_short(seconds: object) -> bool:
    return isinstance(seconds, int | float) and not isinstance(seconds, bool) and _BRIEF_S < seconds < _PATIENT_S


def _limits(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="wait")) if name in _VIRTUAL:
            pass
        case ast.Call(func=ast.Attribute(attr="wait_for"), args=[_, last]):
            yield last
        case ast.Call(func=ast.Attribute(attr=name), args=[last]) if name in _WAITS:
            yield last
        case ast.Call(func=ast.Attribute(attr=name), keywords=keywords) if name in _PATIENT_CALLS:
            yield from (each.value for each in keywords if each.arg == "timeout")
        case ast.BinOp(left=left, op=ast.Add(), right=right) if _is_clock(left):
            yield right
        case ast.Compare(comparators=[*_, last], ops=[*_, ast.Lt()]) if any(
            map(_is_elapsed, ast.iter_child_nodes(node))
        ):
            yield last


def _is_elapsed(node: ast.AST) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_clock(node.left)


def _is_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CLOCKS
