"""Every store is exported and imported as the contract says, and broken exports and imports are caught."""

import inspect
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from strandline.artifacts import exporter, importer
from strandline.artifacts import manifest as manifests
from strandline.journal import WRITTEN
from strandline.testing import ARTIFACT_CHECKS, ArtifactCheck, ContractBroken, check_artifacts, run_artifact_check
from strandline.testing import artifacts as checks
from strandline.testing.artifacts import CheckedArtifact
from tests.fold.helpers import opened

BACKENDS = ["append log", "sqlite", "rocksdb"]


@contextmanager
def fresh(backend: str) -> Iterator[CheckedArtifact]:
    with tempfile.TemporaryDirectory(prefix="artifacts-") as folder:
        (Path(folder) / "store").mkdir()
        (Path(folder) / "artifacts").mkdir()
        with opened(backend, Path(folder) / "store", WRITTEN) as checked:
            yield CheckedArtifact(checked.store, Path(folder) / "artifacts")


@pytest.mark.parametrize("check", ARTIFACT_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("backend", BACKENDS)
def test_stores_are_exported_and_imported_as_the_contract_says(backend: str, check: ArtifactCheck) -> None:
    run_artifact_check(check, lambda: fresh(backend))


def test_every_check_that_is_written_is_listed() -> None:
    written = {
        name
        for name, function in inspect.getmembers(checks, inspect.isfunction)
        if function.__module__ == checks.__name__ and not name.startswith("_")
    }
    assert written - {"run_artifact_check", "check_artifacts"} == {check.__name__ for check in ARTIFACT_CHECKS}


def nothing(*_: object, **__: object) -> None:
    """Check nothing."""


BREAKS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "import_rejects_symlink_in_payload": lambda patch: patch.setattr(stat, "S_ISREG", lambda _: True),
    "import_rejects_path_outside": lambda patch: patch.setattr(manifests, "is_safe_path", lambda _: True),
    "import_rejects_cursor_mismatch": lambda patch: patch.setattr(importer, "check_copy", nothing),
    "import_rejects_wrong_backend": lambda patch: patch.setattr(importer, "check_fit", nothing),
    "import_rejects_scope_that_does_not_cover": lambda patch: patch.setattr(importer, "check_fit", nothing),
    "import_rejects_mirror_for_archive": lambda patch: patch.setattr(importer, "check_fit", nothing),
    "import_rejects_another_bucket": lambda patch: patch.setattr(importer, "check_fit", nothing),
    "import_rejects_backend_version": lambda patch: patch.setattr(importer, "check_fit", nothing),
    "import_rejects_nonempty_dest": lambda patch: patch.setattr(importer, "check_vacant", nothing),
    "export_rejects_nonempty_dest": lambda patch: patch.setattr(exporter, "check_destination", nothing),
    "export_rejects_data_without_cursor": lambda patch: patch.setattr(exporter, "check_cursor", nothing),
}


@pytest.mark.parametrize("check", BREAKS)
def test_without_its_rule_a_check_fails(check: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BREAKS[check](monkeypatch)
    (rule,) = [each for each in ARTIFACT_CHECKS if each.__name__ == check]
    with pytest.raises(ContractBroken) as broken:
        run_artifact_check(rule, lambda: fresh("append log"))
    assert broken.value.check == check


def test_all_checks_can_be_run_at_once_without_a_test_runner() -> None:
    check_artifacts(lambda: fresh("memory"))
