"""Archives are opened within bounds; what stays closed is counted, and nothing in them can raise."""

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import time
import zipfile

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from strandline.detect.archives.members import kind_of
from strandline.detect.archives.streams import FREE_BYTES
from strandline.detect.limits import KIB, MIB, Limits
from strandline.detect.results import Coverage, ItemResult
from tests.detect.fakes import engine, only
from tests.detect.packing import (
    ARCHIVES,
    Packed,
    in_bzip2,
    in_gzip,
    in_stored_zip,
    in_tar,
    in_xz,
    in_zip,
    in_zstd,
    zipped,
)
from tests.effort import examples

SECRET = b"zyxwvu9876543210"
TEXT = Packed(b"words\nx = tok_" + SECRET + b" words\n", (14, 30))
KINDS = {
    in_gzip: "gzip",
    in_bzip2: "bzip2",
    in_xz: "xz",
    in_zstd: "zstd",
    in_zip: "zip",
    in_stored_zip: "zip",
    in_tar: "tar",
}


def scan(data: bytes, path: str = "a", **limits: int) -> ItemResult:
    return engine(limits=Limits(**limits)).scan(data, path)


@pytest.mark.parametrize("layer", ARCHIVES)
def test_each_kind_is_known_by_its_first_bytes(layer: object) -> None:
    packed = layer(TEXT)  # type: ignore[operator]
    assert kind_of(packed.data) == KINDS[layer]  # type: ignore[index]
    found = only(scan(packed.data))
    assert (found.start, found.end, found.line, found.column) == (*packed.span, 2, 9)


@pytest.mark.parametrize("data", [b"", b"PK", b"BZh9 is no stream", b"\x1f\x8b", b" " * 600, b"\0" * 2_000, b"0" * 512])
def test_other_bytes_are_no_archive(data: bytes) -> None:
    assert kind_of(data) is None
    assert scan(data).coverage == Coverage(bytes_seen=len(data))


def test_a_member_has_a_path_behind_that_of_its_archive() -> None:
    found = only(scan(in_zip(in_gzip(in_tar(TEXT))).data, "x.zip"))
    name = "deep/" * 40 + "side.txt"
    assert found.path == f"x.zip!in/side.txt!{name}"
    assert found.via == ("zip:in/side.txt", "gzip", f"tar:{name}")


def test_a_rule_for_paths_sees_that_of_the_member() -> None:
    from strandline.detect.rules.rule import Rule  # noqa: PLC0415

    by_path = engine(Rule("env", r"x = (\w+)", path=r"!in/side\.txt$"))
    assert by_path.scan(in_zip(TEXT).data, "x.zip").findings
    assert not by_path.scan(TEXT.data, "x.zip").findings


def test_the_same_secret_in_a_member_and_in_the_bytes_of_the_archive_is_found_once() -> None:
    found = only(scan(in_stored_zip(TEXT).data))
    assert found.via == ("zip:in/side.txt",)


def test_what_is_no_member_is_found_in_the_bytes_of_the_archive() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("a", b"nothing")
        archive.comment = TEXT.data
    assert only(scan(out.getvalue())).via == ()


def test_bytes_of_members_are_seen_beside_those_of_the_item() -> None:
    data = gzip.compress(TEXT.data)
    assert scan(data).coverage.bytes_seen == len(data) + len(TEXT.data)


def test_an_archive_that_stands_too_deep_is_counted() -> None:
    data = TEXT
    for _ in range(3):
        data = in_zip(data)
    assert scan(data.data, archive_depth=3).findings
    shallow = scan(data.data, archive_depth=2)
    assert not shallow.findings
    assert shallow.coverage.members_skipped == 1
    assert scan(data.data, archive_depth=0).coverage == Coverage(len(data.data), members_skipped=1)


def test_a_tar_in_a_stream_is_one_archive_with_it() -> None:
    assert only(scan(in_gzip(in_tar(TEXT)).data, archive_depth=1)).path.endswith("!" + "deep/" * 40 + "side.txt")
    assert scan(in_gzip(in_gzip(TEXT)).data, archive_depth=1).coverage.members_skipped == 1


def test_entries_over_the_limit_are_counted_one_by_one() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for number in range(10):
            archive.writestr(f"{number}", b"tok_%016d" % number)
        archive.mkdir("folder")
    result = scan(out.getvalue(), archive_entries_max=4)
    assert {found.path for found in result.findings if found.via} == {"a!0", "a!1", "a!2", "a!3"}
    assert result.coverage.members_skipped == 6


@pytest.mark.parametrize("layer", [in_zip, in_stored_zip, in_tar, in_gzip, in_bzip2, in_xz, in_zstd])
def test_the_beginning_of_an_entry_over_the_limit_is_looked_at(layer: object) -> None:
    text = Packed(TEXT.data + b"more words\n" * 100, TEXT.span)
    result = scan(layer(text).data, entry_bytes_max=len(TEXT.data))  # type: ignore[operator]
    assert len(result.findings) == 1
    assert result.coverage.members_skipped == 1


def test_all_entries_together_are_bounded() -> None:
    data = in_tar(Packed(b"x" * 1_000 + TEXT.data, (0, 0))).data
    result = scan(data, archive_bytes_max=500)
    assert result.coverage.members_skipped == 1


@pytest.mark.parametrize("pack", [gzip.compress, bz2.compress, lzma.compress, zstandard.compress, zipped])
def test_a_bomb_is_cut_at_its_ratio(pack: object) -> None:
    bomb = pack(b"\0" * (16 * MIB))  # type: ignore[operator]
    begin = time.process_time()
    result = scan(bomb, archive_ratio_max=2)
    assert result.coverage.members_skipped == 1
    assert result.coverage.bytes_seen <= len(bomb) + max(FREE_BYTES, 2 * len(bomb)) + KIB
    assert time.process_time() - begin < 20


def test_a_bomb_of_bombs_is_bounded_as_a_whole() -> None:
    inner = gzip.compress(b"\0" * (2 * MIB))
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for number in range(50):
            archive.writestr(f"{number}.gz", inner)
    result = scan(out.getvalue(), archive_bytes_max=3 * MIB + 512 * KIB)
    assert result.coverage.bytes_seen < len(out.getvalue()) + 4 * MIB
    assert result.coverage.members_skipped > 40


def test_streams_in_a_row_are_one_text() -> None:
    for pack in (gzip.compress, bz2.compress, lzma.compress, zstandard.compress):
        halves = pack(TEXT.data[:20]) + pack(TEXT.data[20:])
        assert scan(halves).findings
        assert scan(halves).coverage.is_whole
        padded = halves + (b"" if pack is zstandard.compress else b"\0" * 16)
        assert scan(padded).coverage.is_whole
        assert scan(halves + b"something else").coverage.members_skipped == 1


@pytest.mark.parametrize("layer", [in_gzip, in_bzip2, in_xz, in_zstd, in_zip, in_tar])
def test_an_archive_that_was_cut_off_is_a_gap(layer: object) -> None:
    data = layer(Packed(TEXT.data * 100, (0, 0))).data  # type: ignore[operator]
    result = scan(data[: len(data) * 2 // 3])
    assert result.coverage.members_skipped >= 1


def test_a_tar_is_whole_up_to_its_end_mark_and_each_gap_is_one() -> None:
    whole = in_tar(TEXT)
    end = whole.span[0] - 14 + len(TEXT.data)
    assert scan(whole.data).coverage.is_whole
    assert scan(whole.data[: end - 3]).coverage.members_skipped == 1
    block = -(-end // 512) * 512
    assert scan(whole.data[:block]).coverage.is_whole
    assert scan(whole.data[:block] + b"x" * 600).coverage.members_skipped == 1


def test_an_encrypted_member_is_a_gap() -> None:
    data = bytearray(zipped(TEXT.data))
    at = data.rindex(b"PK\x01\x02")
    data[at + 8] |= 1
    result = scan(bytes(data))
    assert not result.findings
    assert result.coverage.members_skipped == 1


def test_an_unknown_method_is_a_gap() -> None:
    data = bytearray(zipped(TEXT.data))
    struct.pack_into("<H", data, data.rindex(b"PK\x01\x02") + 10, 99)
    assert scan(bytes(data)).coverage.members_skipped == 1


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2])
def test_the_methods_of_zip_are_read(method: int) -> None:
    assert only(scan(zipped(TEXT.data, method))).path == "a!in/side.txt"


def test_sizes_and_places_that_need_eight_bytes_are_read() -> None:
    data = zipped(TEXT.data)
    at = data.rindex(b"PK\x01\x02")
    packed, plain, name_size = *struct.unpack_from("<2L", data, at + 20), struct.unpack_from("<H", data, at + 28)[0]
    offset = struct.unpack_from("<L", data, at + 42)[0]
    extra = struct.pack("<2HB2H3Q", 7, 1, 0, 1, 24, plain, packed, offset)
    entry = bytearray(data[at : at + 46 + name_size] + extra)
    struct.pack_into("<2L", entry, 20, 0xFFFFFFFF, 0xFFFFFFFF)
    struct.pack_into("<H", entry, 30, len(extra))
    struct.pack_into("<L", entry, 42, 0xFFFFFFFF)
    end = bytearray(data[data.rindex(b"PK\x05\x06") :])
    struct.pack_into("<L", end, 12, struct.unpack_from("<L", end, 12)[0] + len(extra))
    assert only(scan(data[:at] + bytes(entry) + bytes(end))).path == "a!in/side.txt"


def test_a_zip_behind_another_is_read_and_the_other_is_a_gap() -> None:
    one, other = zipped(b"words"), zipped(TEXT.data)
    result = scan(one + other)
    assert only(result).start > len(one)
    assert result.coverage.members_skipped == 1


def test_a_member_written_without_knowing_its_size_is_read() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("x", "w", force_zip64=True) as member:
        member.write(TEXT.data)
    assert only(scan(out.getvalue())).path == "a!x"


@pytest.mark.parametrize("magic", [b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07\x01\x00"])
def test_archives_that_are_not_read_are_gaps(magic: bytes) -> None:
    assert scan(magic + b"..." * 100).coverage.members_skipped == 1


def test_pax_and_gnu_names_and_sizes_are_read() -> None:
    for form in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w", format=form) as archive:
            info = tarfile.TarInfo("d" * 90 + "/" + "n" * 90)
            info.size = len(TEXT.data)
            archive.addfile(info, io.BytesIO(TEXT.data))
            archive.addfile(tarfile.TarInfo("link"))
        assert only(scan(out.getvalue())).path == "a!" + "d" * 90 + "/" + "n" * 90


def test_a_name_is_shown_without_control_characters() -> None:
    assert only(scan(zipped(TEXT.data, name="a\x1b[31mb\n"))).path == "a!a\ufffd[31mb\ufffd"


@examples(100)
@given(
    layer=st.sampled_from(ARCHIVES),
    cuts=st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8)), max_size=4),
    end=st.floats(0.2, 1),
)
def test_damaged_archives_never_raise(layer: object, cuts: list[tuple[float, bytes]], end: float) -> None:
    data = bytearray(layer(Packed(TEXT.data * 3, (0, 0))).data)  # type: ignore[operator]
    for place, patch in cuts:
        at = int(place * len(data))
        data[at : at + len(patch)] = patch
    ENGINE.scan(bytes(data[: int(len(data) * end)]))


@examples(100)
@given(
    magic=st.sampled_from(
        [b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b\x08", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd", b"BZh91AY&SY"]
    ),
    data=st.binary(max_size=400),
)
def test_any_bytes_behind_the_first_are_a_gap_at_worst(magic: bytes, data: bytes) -> None:
    ENGINE.scan(magic + data)


@examples(100)
@given(fields=st.binary(min_size=64, max_size=64), tail=st.binary(max_size=100))
def test_any_directory_of_a_zip_is_walked(fields: bytes, tail: bytes) -> None:
    entry = b"PK\x01\x02" + fields[:42]
    end = b"PK\x05\x06" + b"\0" * 4 + b"\1\0\1\0" + struct.pack("<2L", len(entry) + len(tail), 4) + b"\0\0"
    ENGINE.scan(b"PK\x03\x04" + entry + tail + end)


ENGINE = engine()
