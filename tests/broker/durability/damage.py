"""Damage to the log of a stream, repaired as an operator does."""

from pathlib import Path

from tests.cli.journal_runs import run, segments_of


def journal_of(store: Path, stream: str = "orders") -> Path:
    """Return the folder of a stream's log."""
    (found,) = store.glob(f"strandline/*/streams/{stream}/journal")
    return found


def damage(store: Path, *texts: bytes) -> None:
    """Flip four bytes of each message with one of these texts, and repair the journal as an operator does."""
    journal = journal_of(store)
    (segment,) = segments_of(journal)
    data = bytearray(segment.read_bytes())
    for text in texts:
        at = data.index(text)
        data[at : at + 4] = bytes(byte ^ 0xFF for byte in data[at : at + 4])
    segment.write_bytes(data)
    assert run("verify", journal).code != 0
    assert run("repair", journal, "--yes").code == 0
