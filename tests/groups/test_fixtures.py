"""Old bytes load for ever, and today's writer still writes them."""

import json
from pathlib import Path

import pytest

from strandline.groups import Group, format_group_file
from strandline.groups.delta import format_delta_header, format_frame, parse_delta_header, walk
from strandline.groups.recovery import recover
from strandline.groups.snapshot import format_snapshot, parse_snapshot
from strandline.sim import SimDisk
from tests.groups.helpers import FOLDER, content, facts, open_group, put, state_of

FIXTURES = Path(__file__).parent.parent / "fixtures" / "groups"


@pytest.fixture(params=sorted(path.name for path in FIXTURES.iterdir()))
def fixture(request: pytest.FixtureRequest) -> Path:
    return FIXTURES / str(request.param)


def load(fixture: Path) -> tuple[dict[str, object], bytes, bytes]:
    expected = json.loads((fixture / "expected.json").read_text(encoding="utf-8"))
    snapshot, delta = (
        (fixture / format_group_file(expected["name"], kind)).read_bytes() for kind in ("snapshot", "delta")
    )
    return expected, snapshot, delta


def test_files_of_every_version_say_what_they_said(fixture: Path) -> None:
    expected, snapshot, delta = load(fixture)
    recovery = recover(str(expected["name"]), snapshot, delta, ("snapshot", "delta"))
    assert {
        "name": recovery.snapshot.name,
        "acked_until": recovery.state.acked_until,
        "acked_ranges": [list(pair) for pair in recovery.state.acked_ranges()],
        "inflight": [list(entry) for entry in recovery.state.inflight()],
        "waiting": [list(entry) for entry in recovery.state.waiting()],
        "next_sequence": recovery.next_sequence,
        "clean": recovery.clean,
    } == expected


def test_a_group_goes_on_from_files_of_every_version(fixture: Path) -> None:
    expected, snapshot, delta = load(fixture)
    name = str(expected["name"])
    disk = SimDisk()
    disk.make_folder(FOLDER)
    put(disk, FOLDER / format_group_file(name, "snapshot"), snapshot)
    put(disk, FOLDER / format_group_file(name, "delta"), delta)

    def opened() -> Group:
        return open_group(disk, name=name)

    with opened() as group:
        group.ack(11)
        known = facts(state_of(group))
    with opened() as group:
        assert facts(state_of(group)) == known
        group.compact()
    assert content(disk, FOLDER / format_group_file(name, "delta")) != delta
    with opened() as group:
        assert facts(state_of(group)) == known


def test_todays_writer_writes_the_same_bytes() -> None:
    _, snapshot, delta = load(FIXTURES / "v1")
    assert format_snapshot(parse_snapshot(snapshot, "snapshot")) == snapshot
    header = parse_delta_header(delta, "delta")
    frames = [
        format_frame(header.identity, frame.sequence, frame.durable_sequence, frame.written_ns, [frame.operations])
        for frame in walk(delta, header)
    ]
    assert format_delta_header(header) + b"".join(frames) == delta.rstrip(b"\0")
