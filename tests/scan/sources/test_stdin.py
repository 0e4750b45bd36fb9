"""Standard input is one item, whatever its size: lines, positions and secrets are those of the whole."""

import base64
import gzip
import io
import pickle
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from strandline.scan.sources import InputUnusable, ItemProblem, Problem, StdinSource
from strandline.scan.sources import stdin as stdin_module
from tests.scan.sources.helpers import listed
from tests.scan.threaded_workers import ThreadWorkers, made, request_for, scanned

Piped: TypeAlias = Callable[..., StdinSource]


class Pipe:
    """Bytes as the standard input, which can be read once."""

    def __init__(self, data: bytes) -> None:
        self.buffer = io.BytesIO(data)


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Piped:
    def pipe(data: bytes, name: str = "stdin") -> StdinSource:
        monkeypatch.setattr(sys, "stdin", Pipe(data))
        return StdinSource.named(name)

    return pipe


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small inputs be large ones."""
    monkeypatch.setattr(stdin_module, "WHOLE_BYTES_MAX", 1_000)
    monkeypatch.setattr(stdin_module, "PIECE_BYTES", 1_000)
    monkeypatch.setattr(stdin_module, "REPEATED_BYTES", 300)
    monkeypatch.setattr(stdin_module, "MEMORY_BYTES_MAX", 2_000)


def places(source: StdinSource, folder: Path, name: str = "state") -> list[tuple[str, int]]:
    outcome = scanned(request_for(made(str(folder / f"{name}.db")), source), ThreadWorkers(1))
    return sorted((one.observation.location_display or "", one.occurrence.byte_offset) for one in outcome.findings)


def test_the_input_is_one_item_under_its_name(piped: Piped, tmp_path: Path) -> None:
    source = piped(b"one\ntwo alpha_123\n", "src/app.py")
    assert places(source, tmp_path) == [("src/app.py:2:5", 8)]
    (row,) = listed(source)
    assert row["locator"] == b"src/app.py"
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(b"else", None)
    assert refused.value.code is Problem.VANISHED


@pytest.mark.usefixtures("pieces")
def test_a_large_input_is_scanned_in_pieces_with_the_places_of_the_whole(piped: Piped, tmp_path: Path) -> None:
    lines = [f"line {number} alpha_{1000 + number} filler" for number in range(400)]
    data = "\n".join(lines).encode()
    source = piped(data)
    with source.open() as reader:
        parts = list(reader.read(b"stdin", None).parts)
    assert len(parts) > 10
    assert max(len(part.data) for part in parts) < 2_000, "the memory is that of a piece"
    for part in parts:
        assert data[part.offset : part.offset + len(part.data)] == part.data
        assert part.lines_before == data[: part.offset].count(b"\n")
        assert part.columns_before == 0
    found = places(source, tmp_path)
    wanted = sorted(
        (f"stdin:{number}:{line.index('alpha') + 1}", data.index(line.encode()) + line.index("alpha"))
        for number, line in enumerate(lines, 1)
    )
    assert found == wanted, "each secret once, at its place"


@pytest.mark.usefixtures("pieces")
def test_an_encoded_secret_in_a_later_piece_has_its_line_of_the_whole(piped: Piped, tmp_path: Path) -> None:
    lines = [f"filler {number}" for number in range(400)]
    lines[300] = f"x: {base64.b64encode(b'the key is alpha_1234567, keep it to yourself').decode()}"
    ((place, _),) = places(piped("\n".join(lines).encode()), tmp_path)
    assert place.startswith("stdin:301:")


@pytest.mark.usefixtures("pieces")
def test_a_secret_on_the_border_of_two_pieces_is_found(piped: Piped, tmp_path: Path) -> None:
    for before in (1_285, 1_290, 1_298, 1_310, 2_300):  # pieces end at 1,300, 2,600, …
        data = b"first\n" + b"x" * (before - 6) + b" alpha_12345 " + b"y" * 3_000  # one long line
        found = places(piped(data), tmp_path, f"state{before}")
        assert (f"stdin:2:{before - 4}", before + 1) in found, before


@pytest.mark.usefixtures("pieces")
def test_an_archive_is_scanned_as_a_whole_or_said(
    piped: Piped, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = random.Random(3).randbytes(5_000).hex().encode()  # more than a piece, also when it is compressed
    data = gzip.compress(noise + b"\nalpha_123\n")
    assert len(data) > 2_000
    assert len(places(piped(data), tmp_path)) == 1
    monkeypatch.setattr(stdin_module, "SIZE_MAX", 2_000)
    outcome = scanned(request_for(made(str(tmp_path / "large.db")), piped(data)), ThreadWorkers(1))
    assert outcome.codes == {Problem.TOO_LARGE: 1}


def test_equal_bytes_are_scanned_once_and_other_bytes_again(piped: Piped, tmp_path: Path) -> None:
    address = made(str(tmp_path / "state.db"))
    for data, started in ((b"alpha_123", 1), (b"alpha_123", 0), (b"beta_123", 1)):
        workers = ThreadWorkers(1)
        scanned(request_for(address, piped(data)), workers)
        assert workers.started == started


def test_another_process_cannot_read_it_and_says_so(piped: Piped) -> None:
    source = pickle.loads(pickle.dumps(piped(b"text")))  # noqa: S301 - our own
    with source.open() as reader, pytest.raises(InputUnusable) as refused:
        reader.read(b"stdin", None)
    assert "--without-spark" in (refused.value.hint or "")
