"""Files in the forms of other programs: most secrets in them are found, and almost nothing else is."""

from collections import Counter

import pytest

from benchmarks._foreign import CLEAN, ForeignScore, foreign_files, foreign_score, marked
from strandline.detect.engine import Engine
from strandline.detect.rules.gitleaks import load_builtin
from strandline.pipeline.identity import TenantSecretKey

RECALL_MIN = {
    "escapes": 0.9,
    "flag": 0.98,
    "positional": 0.9,
    "markdown": 0.8,
    "csharp": 0.98,
    "xml": 0.98,
    "ini": 0.95,
    "url": 0.98,
    "password": 0.9,
    "generic": 0.9,
    "framework": 0.98,
    "file": 0.98,
    "header": 0.98,
    "key": 0.98,
}


@pytest.fixture(scope="module")
def score() -> ForeignScore:
    return foreign_score(Engine(load_builtin(), key=TenantSecretKey(bytes(range(32)))), rounds=2)


@pytest.mark.parametrize("kind", RECALL_MIN)
def test_secrets_of_each_class_are_found(score: ForeignScore, kind: str) -> None:
    missed = Counter(path for of, path in score.missed if of == kind)
    assert score.found[kind] >= RECALL_MIN[kind] * score.secrets[kind] > 0, missed


def test_nothing_else_is_found(score: ForeignScore) -> None:
    assert score.false == []


def test_the_marks_of_a_secret_are_cut_out_and_its_span_is_kept() -> None:
    file = marked("a", "file", "é=⟦one⟧, b=⟦two⟧")
    assert [file.data[start:end] for start, end in file.secrets] == [b"one", b"two"]
    assert file.data == "é=one, b=two".encode()


def test_a_file_without_a_mark_is_of_the_class_that_has_none() -> None:
    assert [file.path for file in foreign_files() if bool(file.secrets) == (file.kind == CLEAN)] == []
