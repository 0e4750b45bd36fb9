"""Hyperscan databases: the import of hyperscan waits for the first of them."""

import pickle
import subprocess
import sys
from pathlib import Path

import hyperscan
import pytest

from strandline.detect import Engine, Limits, RuleSet
from strandline.detect.matching import databases
from strandline.detect.matching.databases import FIRST_ONLY, Database, FixedDatabase
from strandline.detect.rules.rule import Rule
from strandline.pipeline.identity import TenantSecretKey


def test_importing_the_engine_does_not_load_hyperscan() -> None:
    code = "import sys; from strandline.detect import Engine; print('hyperscan' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "False"


def test_the_flag_of_a_first_match_is_that_of_hyperscan() -> None:
    assert int(hyperscan.HS_FLAG_SINGLEMATCH) == FIRST_ONLY


VIEWS = """
import pickle, sys
from pathlib import Path
from strandline.detect.expressions import patterns
from strandline.detect.matching.databases import Database

def refused(*given):
    raise AssertionError("a database is compiled, or an expression is proved to be quick")

Database.compiled = patterns.ways = refused
engine = pickle.loads(Path(sys.argv[1]).read_bytes())
(found,) = engine.scan(Path(sys.argv[2]).read_bytes()).findings
print(found.via)
"""


def test_a_process_that_gets_an_engine_compiles_no_database_and_proves_nothing_again(tmp_path: Path) -> None:
    engine = Engine(RuleSet((Rule("alpha", r"alpha_[0-9]{3}"),)), Limits(), key=TenantSecretKey(bytes(32)))
    rows = b"INSERT INTO users (password) VALUES ('none');\nCREATE TABLE users (\n" + b"password,id\n" + b"| --- |\n"
    wide = "and a text of sixteen characters".encode("utf-16-le")
    encoded = b"bWF5IGJlIHJlYWQgYW5kIGhhcyBhbHBoYV8xMjMgaW4gaXQsIHRvbw=="
    text = b'{"a": "b\\u003dc"}\n' + rows + encoded + b"\n" + wide
    (tmp_path / "engine").write_bytes(pickle.dumps(engine))
    (tmp_path / "text").write_bytes(text)
    command = [sys.executable, "-c", VIEWS, str(tmp_path / "engine"), str(tmp_path / "text")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.stdout.strip() == "('base64',)", ran.stderr


def test_a_fixed_database_of_another_kind_of_machine_is_compiled_and_saved_for_this_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(databases, "_fixed", {})
    fixed = FixedDatabase("words", [b"alpha"])
    fixed.keep(b"a database of another kind of machine")
    assert Database.loaded(fixed.dumped()) is not None
    assert fixed.found(b"an alpha") == [(8, 0)]
    assert databases.dumped_fixed() == (("words", fixed.dumped()),)
