"""Lines and columns, and the way from a frame to the item."""

from hypothesis import given
from hypothesis import strategies as st

from strandline.detect import frames
from strandline.detect.frames import Frame, LineIndex, shifted


@given(
    data=st.lists(st.sampled_from([b"\n", b"a", b"bcd" * 700, b"\n\n"]), max_size=30).map(b"".join), at=st.floats(0, 1)
)
def test_lines_and_columns_are_counted_from_one(data: bytes, at: float) -> None:
    position = int(at * len(data))
    before = data[:position]
    expected = (before.count(b"\n") + 1, position - before.rfind(b"\n"))
    assert LineIndex(data).locate(position) == expected


def test_the_end_of_the_last_block_is_a_position_too() -> None:
    data = b"\n" * frames._BLOCK_BYTES  # noqa: SLF001
    assert LineIndex(data).locate(len(data)) == (len(data) + 1, 1)
    assert LineIndex(b"").locate(0) == (1, 1)


def test_a_span_leads_out_through_every_frame_and_to_its_file() -> None:
    item = Frame(b"0123456789", "a", commit="c")
    member = item.member("zip", "b", b"234567", shifted(2))
    view = member.view("hex", b"45", shifted(2))
    assert view.outer_span(0, 1) == (4, 5)
    assert view.in_file(0, 1) == (member, 2, 3)
    assert (view.path, view.commit, view.via) == ("a!b", "c", ("zip:b", "hex"))
    assert (view.decodes, view.archives, view.is_file) == (1, 1, False)
    assert "45" not in repr(view)
