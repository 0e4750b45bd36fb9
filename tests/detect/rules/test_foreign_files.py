"""Files in the forms of other programs: most secrets in them are found, and almost nothing else is."""

from collections import Counter
from pathlib import Path

import pytest

from benchmarks._foreign import CLEAN, DOCUMENTED, FOREIGN, ForeignScore, foreign_files, foreign_score, marked
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


DOCUMENTED_MIN = {
    "define": 0.95,
    "default": 0.98,
    "pair": 0.95,
    "header": 0.98,
    "flag": 0.92,
    "framework": 0.85,
    "file": 0.9,
    "password": 0.85,
    "generic": 0.9,
    "markdown": 0.5,
}


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(load_builtin(), key=TenantSecretKey(bytes(range(32))))


@pytest.fixture(scope="module")
def score(engine: Engine) -> ForeignScore:
    return foreign_score(engine, rounds=2)


@pytest.fixture(scope="module")
def documented(engine: Engine) -> ForeignScore:
    return foreign_score(engine, rounds=2, data=DOCUMENTED)


@pytest.mark.parametrize("kind", RECALL_MIN)
def test_secrets_of_each_class_are_found(score: ForeignScore, kind: str) -> None:
    missed = Counter(path for of, path in score.missed if of == kind)
    assert score.found[kind] >= RECALL_MIN[kind] * score.secrets[kind] > 0, missed


@pytest.mark.parametrize("kind", DOCUMENTED_MIN)
def test_secrets_in_formats_of_manuals_are_found(documented: ForeignScore, kind: str) -> None:
    missed = Counter(path for of, path in documented.missed if of == kind)
    assert documented.found[kind] >= DOCUMENTED_MIN[kind] * documented.secrets[kind] > 0, missed


def test_nothing_else_is_found(score: ForeignScore, documented: ForeignScore) -> None:
    assert score.false == []
    assert documented.false == []


def test_the_marks_of_a_secret_are_cut_out_and_its_span_is_kept() -> None:
    file = marked("a", "file", "é=⟦one⟧, b=⟦two⟧")
    assert [file.data[start:end] for start, end in file.secrets] == [b"one", b"two"]
    assert file.data == "é=one, b=two".encode()


@pytest.mark.parametrize("data", [FOREIGN, DOCUMENTED], ids=lambda data: data.stem)
def test_a_file_without_a_mark_is_of_the_class_that_has_none(data: Path) -> None:
    assert [file.path for file in foreign_files(data=data) if bool(file.secrets) == (file.kind == CLEAN)] == []
