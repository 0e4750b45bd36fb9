"""Hints of errors that commands of folds show, in the words of the command line."""

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import strandline
from strandline.cli.app import app
from strandline.cli.exit_codes import report
from strandline.cli.vocabulary import in_cli_words
from strandline.fold.errors import ModeChanged, ScopeChanged
from strandline.fold.watch.repairer import NO_RESTORER
from strandline.kv.errors import BucketNotFound

SOURCE = Path(strandline.__file__).parent
PACKAGES = ("artifacts", "fold", "kv", "objects")
SHOWN = [path for name in PACKAGES for path in (SOURCE / name).rglob("*.py")]
SHOWN += [SOURCE / "errors.py", SOURCE / "files.py"]
OF_LIBRARIES = re.compile(r"[a-z]_[a-z]|[a-z][A-Z]|[A-Z][a-z]+\.[A-Z]|\w\(\)")
"""Names of functions, classes, parameters and calls."""
NOT_SHOWN = {
    "use a store that does: AWS S3, Cloudflare R2, Google Cloud Storage, Azure, MinIO, SeaweedFS or file:///": "names",
    "use from_columns": "a batch is made by programs",
    "await connect() first": "commands connect",
    "follow it in one process; others use open_read_only": "a followed fold is an object of a program",
    "too many open files: raise `ulimit -n`, or lower `open_files_max`": "an option of journals, which has no flag",
    "reading takes $JS.API.>, writing $KV.<bucket>.>, and answers come to _INBOX.>": "these are subjects",
}


def hints() -> list[str]:
    """Return every text in the sources that is given as a hint."""
    found = []
    for path in SHOWN:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.keyword) and node.arg in ("hint", "safe"):
                texts = (each.value for each in ast.walk(node.value) if isinstance(each, ast.Constant))
                found += [text for text in texts if isinstance(text, str)]
    return [*found, NO_RESTORER]


def test_no_hint_that_a_command_may_show_has_words_of_the_library() -> None:
    left = {hint for hint in hints() if hint not in NOT_SHOWN and OF_LIBRARIES.search(_without_commands(hint))}
    assert not left, "give each a word in cli/vocabulary.py, or a reason in NOT_SHOWN"


def _without_commands(hint: str) -> str:
    return re.sub(r"`[^`]*`", "", in_cli_words(hint))


@pytest.mark.parametrize(
    ("error", "says", "not_says"),
    [
        (BucketNotFound("b"), "name of one that exists", "StoreConfig"),
        (ScopeChanged("b", "a.*"), "`strandline fold repair`", "repair_fold"),
        (ModeChanged("b", "archive"), "`strandline fold repair --mode mirror`", "FoldMode"),
        (ModeChanged("b", "mirror"), "--mode archive", "FoldMode"),
    ],
)
def test_a_command_says_its_own_options(
    error: strandline.errors.StrandlineError, says: str, not_says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    report(error)
    told = capsys.readouterr().err
    assert says in told
    assert not_says not in told


def test_the_options_that_hints_name_are_there() -> None:
    shown = CliRunner().invoke(app, ["fold", "run", "--help"], env={"COLUMNS": "200"}).output
    named = {option for hint in map(in_cli_words, hints()) for option in re.findall(r"--[a-z-]+[a-z]", hint)}
    missing = {option for option in named if option not in shown}
    assert missing <= {"--follow", "--max-bucket-size"}, "of journals, and of the nats command"
