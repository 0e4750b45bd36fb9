"""Hints of errors that commands show, in the words of the command line."""

import ast
import re
from pathlib import Path

import pytest

import strandline
from strandline.cli.app import COMMANDS
from strandline.cli.exit_codes import report
from strandline.cli.vocabulary import in_cli_words
from strandline.fold.errors import ModeChanged, ScopeChanged
from strandline.fold.watch.repairer import NO_RESTORER
from strandline.kv.errors import BucketNotFound
from strandline.lease import LeaseLost
from tools.config_schema import commands

SOURCE = Path(strandline.__file__).parent
PACKAGES = (
    *("alarms", "artifacts", "config", "detect", "findings", "fold", "groups", "journal", "kv", "lease", "nats"),
    *("objects", "pipeline", "queue", "replica", "scan", "verify"),
)
"""Those whose errors commands show; hints of `strandline.spark` are for notebooks, and the broker's for its file."""
SHOWN = [path for name in PACKAGES for path in (SOURCE / name).rglob("*.py")]
SHOWN += [SOURCE / "errors.py", SOURCE / "files.py"]
OF_LIBRARIES = re.compile(r"[a-z]_[a-z]|[a-z][A-Z]|[A-Z][a-z]+\.[A-Z]|\w\(\)")
"""Names of functions, classes, parameters and calls."""
OF_OTHER_PROGRAMS = {"--add", "--filter", "--global", "--refetch", "--version"}
"""Options of git that hints name."""
NOT_SHOWN = {
    "use a store that does: AWS S3, Cloudflare R2, Google Cloud Storage, Azure, MinIO, SeaweedFS or file:///": "names",
    "use from_columns": "a batch is made by programs",
    "await connect() first": "commands connect",
    "follow it in one process; others use open_read_only": "a followed fold is an object of a program",
    "encode text with .encode()": "commands give bytes",
    "ttl_s is at least 3 * renew_s + 2 * margin_s, and a few times what a write takes": "one option sets all",
    "name it like 0003_more_columns.sql": "for who writes migrations",
    "a group begins with its first fetch_available, or add_group": "for storages of queues",
    "give it what GroupStorage asks for": "the same",
    "acknowledge them in parts, or use ack_below": "commands acknowledge nothing",
    "give NatsSettings with the nats:// or tls:// address of the server": "commands have no client of nats-py",
    "too many open files: raise `ulimit -n`, or lower `open_files_max`": "an option of journals, which has no flag",
    "reading takes $JS.API.>, writing $KV.<bucket>.>, and answers come to _INBOX.>": "these are subjects",
}


def hints() -> list[str]:
    """Return every text in the sources that is given as a hint, or has the name of one."""
    found = []
    for path in SHOWN:
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.keyword(arg="hint" | "safe", value=value):
                    pass
                case ast.Assign(targets=[ast.Name(id=name)], value=value) if "hint" in name.lower() or name == "safe":
                    pass
                case _:
                    continue
            texts = (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
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
        (LeaseLost("b", 3, "the record has epoch 4"), "`strandline lease show` prints the epoch", "acquire()"),
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
    known = {option for _, _, command in commands(COMMANDS) for param in command.params for option in param.opts}
    named = {option for hint in map(in_cli_words, hints()) for option in re.findall(r"--[a-z-]+[a-z]", hint)}
    assert named - known == OF_OTHER_PROGRAMS
