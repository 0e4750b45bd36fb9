"""`strandline journal dump`: the records, one per line, for people or, with `--json`, for programs."""

import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.journal_folder import JournalPath, require_journal, time_of
from strandline.cli.output import AsJson, to_json
from strandline.cli.shown import escape, json_field
from strandline.errors import OffsetsLost
from strandline.journal import SYNCED, WRITTEN, Batch, JournalReader, Record


def dump(
    path: JournalPath,
    start: Annotated[
        int | None, typer.Option(min=0, help="The first offset.", show_default="the first there is")
    ] = None,
    stop: Annotated[int | None, typer.Option(min=0, help="The offset to stop before.", show_default="the end")] = None,
    limit: Annotated[int | None, typer.Option(min=0, help="How many records at most.", show_default="all")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more, until interrupted.")] = False,
    written: Annotated[bool, typer.Option("--written", help="Also show records that are not yet durable.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print records, one per line; works beside a writer and changes nothing.

    With --json, a field that is valid UTF-8 is text (`value`); any other is base64 under another name
    (`value_base64`). Offsets that a repair marked as lost are skipped, and named on standard error.
    """
    require_journal(path)
    format_record = _to_json if as_json else _to_text
    with JournalReader.open(path, visibility=WRITTEN if written else SYNCED) as reader:
        begin = reader.first_offset if start is None else start
        ends = [end for end in (stop, None if limit is None else begin + limit) if end is not None]
        for batch in _batches(reader, begin, min(ends, default=None), follow=follow):
            sys.stdout.writelines(f"{format_record(record)}\n" for record in batch.records())
            if follow:
                sys.stdout.flush()


def _batches(reader: JournalReader, offset: int, stop: int | None, *, follow: bool) -> Iterator[Batch]:
    """Yield batches from `offset`, over every loss, to `stop`, or to the end, or for ever."""
    while stop is None or offset < stop:
        try:
            for batch in reader.follow(offset) if follow else reader.scan(offset, stop=stop):
                yield batch.clip(offset, stop)
                offset = batch.next_offset
                if stop is not None and offset >= stop:
                    return
        except OffsetsLost as lost:
            print(f"note: {lost}", file=sys.stderr)
            offset = lost.resume_at
        else:
            return


def _to_text(record: Record) -> str:
    fields = [str(record.offset)]
    if record.timestamp_ns is not None:
        fields.append(f"time={time_of(record.timestamp_ns) or 0}")
    for name, data in (("key", record.key), ("headers", record.headers), ("value", record.value)):
        if data is not None:
            fields.append(f"{name}={escape(data)}")
    return "  ".join(fields)


def _to_json(record: Record) -> str:
    fields: dict[str, object] = {"offset": record.offset}
    if record.timestamp_ns is not None:
        fields["timestamp_ns"] = record.timestamp_ns
    for name, data in (("key", record.key), ("headers", record.headers), ("value", record.value)):
        if data is not None:
            fields.update([json_field(name, data)])
    return to_json(fields)
