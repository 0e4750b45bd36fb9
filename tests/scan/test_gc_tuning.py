"""The collector looks rarely while a scan works, and as before afterwards."""

import gc
import subprocess
import sys

import pytest

from strandline.scan.gc_tuning import rare_collections


@pytest.fixture(autouse=True)
def _nothing_frozen() -> None:
    """Begin with nothing frozen: commands that ran in this process before freeze what they imported."""
    gc.unfreeze()


@pytest.mark.parametrize("was_frozen", [False, True])
def test_it_is_afterwards_as_it_was(was_frozen: bool) -> None:
    before = gc.get_threshold()
    if was_frozen:
        gc.freeze()
    try:
        with rare_collections():
            assert gc.get_threshold()[0] > before[0]
            assert gc.get_freeze_count() > 0
        assert gc.get_threshold() == before
        assert bool(gc.get_freeze_count()) == was_frozen
    finally:
        gc.unfreeze()


def test_scans_at_once_may_end_in_any_order() -> None:
    before = gc.get_threshold()
    one, other = rare_collections(), rare_collections()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    assert gc.get_threshold()[0] > before[0]
    other.__exit__(None, None, None)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_it_is_as_it_was_after_an_error() -> None:
    before = gc.get_threshold()

    def fails() -> None:
        with rare_collections():
            raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        fails()
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_a_process_that_froze_nothing_itself_has_its_objects_back() -> None:
    """Python 3.12 starts with some hundred frozen objects, which are no sign of a gc.freeze() before the scan."""
    script = (
        "import gc; from strandline.scan.gc_tuning import rare_collections; mine = [[]]\n"
        "with rare_collections(): assert not any(found is mine for found in gc.get_objects())\n"
        "assert any(found is mine for found in gc.get_objects())"
    )
    subprocess.run([sys.executable, "-c", script], check=True)
