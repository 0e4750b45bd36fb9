"""Images are scanned layer by layer: what a later layer deletes is found and said, and no layer is scanned twice."""

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import InvalidInput
from strandline.scan.sources import ImageSource, InputMissing, InputRefused, InputUnusable, ItemProblem, Problem
from strandline.scan.sources import layers as layers_module
from strandline.scan.sources.images import format_locator, parse_locator
from strandline.scan.sources.layers import BrokenLayer, index_layer
from strandline.scan.sources.registry import parse_reference
from tests.scan.sources.helpers import contents, listed, problems
from tests.scan.sources.image_builder import Built, RegistryServer, layer_tar, running_registry, sha256, zipped, zstd
from tests.scan.threaded_workers import ThreadWorkers, made, request_for, scanned

BASE = {"etc/": b"", "etc/conf": b"alpha_100", "app/key": b"alpha_101", "app/deep/old": b"alpha_102", "tmp/x": b"same"}
TOP = {"./app/.wh.key": b"", "etc/conf": b"beta_100", "app/deep/.wh..wh..opq": b"", "app/deep/new": b"beta_101"}
ENV, STEP = "TOKEN=alpha_777", "RUN curl -H 'X: beta_777' x"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def built(**more: Any) -> Built:  # noqa: ANN401
    return Built([BASE, TOP], env=[ENV], steps=[STEP], **more)


def places(source: ImageSource, address: str) -> list[str]:
    outcome = scanned(request_for(address, source), ThreadWorkers(1))
    return sorted(one.observation.location_display or "" for one in outcome.findings)


def wanted(image: Built) -> list[str]:
    first, second = (one[:7] for one in image.diff_ids)
    return sorted(
        [
            "(config)/.env:2:7",
            "(config)/history:1:17",
            f"app/deep/new@{second}:1:1",
            f"app/deep/old@{first} (deleted in a later layer):1:1",
            f"app/key@{first} (deleted in a later layer):1:1",
            f"etc/conf@{first} (replaced in a later layer):1:1",
            f"etc/conf@{second}:1:1",
        ]
    )


@pytest.mark.parametrize("form", ["layout", "oci_archive", "skopeo_archive", "old_docker_save", "new_docker_save"])
def test_every_form_of_an_image_gives_the_same_findings(form: str, tmp_path: Path) -> None:
    image = built(pack=zstd if form == "oci_archive" else zipped)
    path = getattr(image, form)(tmp_path / "image.tar")
    scheme = {"layout": "oci", "oci_archive": "oci-archive", "skopeo_archive": "docker-archive"}.get(form, "image")
    source = ImageSource.at(f"{scheme}:{path}")
    assert places(source, made(str(tmp_path / "state.db"))) == wanted(image)


def test_a_layer_that_two_images_have_is_scanned_once(tmp_path: Path) -> None:
    address = made(str(tmp_path / "state.db"))
    one, two = Built([BASE]), Built([BASE, {"app/other": b"beta_500"}], pack=zstd)
    places(ImageSource.at(f"oci:{one.layout(tmp_path / 'one')}"), address)
    outcome = scanned(request_for(address, ImageSource.at(f"oci:{two.layout(tmp_path / 'two')}")), ThreadWorkers(1))
    assert outcome.new_items == 2, "the other file, and the other configuration"
    assert len(outcome.findings) == 4


def test_a_known_layer_is_not_read_again_to_be_listed(tmp_path: Path) -> None:
    image = built()
    with running_registry() as registry:
        registry.push(image)
        source = ImageSource.at(f"docker://{registry.host}/team/shop:1")
        address = made(str(tmp_path / "state.db"))
        places(source, address)
        registry.got.clear()
        assert places(source, address) == wanted(image)
        config = f"team/shop/blobs/sha256:{sha256(image.config)}"
        assert registry.got == ["team/shop/manifests/1", config]


@pytest.fixture(params=["bearer", "basic"])
def private(request: pytest.FixtureRequest) -> Iterator[RegistryServer]:
    with running_registry("ada:secret-word", request.param) as registry:
        registry.push(built())
        yield registry


def test_a_private_image_needs_its_login_which_storage_never_sees(
    private: RegistryServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ImageSource.at(f"docker://{private.host}/team/shop:1")
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with pytest.raises(InputRefused) as refused:
        listed(source)
    assert "docker login" in (refused.value.hint or "")
    (tmp_path / "config.json").write_text(json.dumps({"auths": {private.host: {"auth": "YWRhOnNlY3JldC13b3Jk"}}}))
    assert places(source, made(str(tmp_path / "state.db"))) == wanted(built())
    assert private.leaked == []
    (tmp_path / "config.json").unlink()
    monkeypatch.setenv("STRANDLINE_REGISTRY_USER", "ada")
    monkeypatch.setenv("STRANDLINE_REGISTRY_PASSWORD", "secret-word")
    assert listed(source)
    monkeypatch.setenv("STRANDLINE_REGISTRY_PASSWORD", "wrong-word")
    with pytest.raises(InputRefused) as refused:
        listed(source)
    assert "wrong-word" not in str(refused.value)


def test_a_host_of_a_redirect_gets_no_login_by_asking_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRANDLINE_REGISTRY_USER", "ada")
    monkeypatch.setenv("STRANDLINE_REGISTRY_PASSWORD", "secret-word")
    with running_registry() as registry:
        registry.push(built())
        registry.storage_asks = True
        with pytest.raises(InputRefused, match="401"):
            listed(ImageSource.at(f"docker://{registry.host}/team/shop:1"))
        assert registry.leaked == []


def test_a_login_in_an_address_is_not_shown() -> None:
    with pytest.raises(InvalidInput) as refused:
        ImageSource.at("docker://ada:secret-word@example.org/team/shop")
    assert "secret-word" not in str(refused.value)


def test_an_image_that_lost_its_name_to_another_is_not_scanned_for_it(tmp_path: Path) -> None:
    old, new = Built([{"old": b"1"}]), Built([{"new": b"1"}])
    layout = old.layout(tmp_path / "layout")
    new.layout(layout)
    index = layout / "index.json"
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [old.entry(), new.entry("latest")]}))
    assert b"new" in contents(ImageSource.at(f"oci:{layout}"))
    index.write_text(json.dumps({"schemaVersion": 2, "manifests": [old.entry(), new.entry()]}))
    with pytest.raises(InputUnusable, match="several images"):
        listed(ImageSource.at(f"oci:{layout}"))


def test_the_platform_is_chosen_and_others_are_named() -> None:
    arm, amd = Built([{"arm": b"1"}], arch="arm64"), Built([{"amd": b"1"}], arch="amd64")
    with running_registry() as registry:
        registry.push(arm, amd)
        address = f"docker://{registry.host}/team/shop:1"
        for platform, name in (("linux/arm64", b"arm"), ("linux/amd64", b"amd")):
            assert name in contents(ImageSource.at(address, platform=platform))
        with pytest.raises(InputUnusable) as refused:
            listed(ImageSource.at(address, platform="linux/s390x"))
        assert "linux/amd64, linux/arm64" in (refused.value.hint or "")
        with pytest.raises(InputMissing):
            listed(ImageSource.at(f"docker://{registry.host}/team/shop:none"))


def test_what_is_no_image_is_a_typed_error(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("hello")
    (tmp_path / "plain.tar").write_bytes(layer_tar({"a": b"b"}))
    (tmp_path / "folder").mkdir()
    whole = built().old_docker_save(tmp_path / "whole.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:3000])
    (tmp_path / "cut.tgz").write_bytes(zipped(whole)[:400])
    (tmp_path / "odd.tar").write_bytes(layer_tar({"manifest.json": b'{"a": 1}'}))
    (tmp_path / "number.tar").write_bytes(layer_tar({"manifest.json": b'[{"Config": 5, "Layers": []}]'}))
    for name in ("text", "plain.tar", "folder", "cut.tar", "cut.tgz", "odd.tar", "number.tar"):
        with pytest.raises(InputUnusable, match=r"not a container image|no index\.json"):
            listed(ImageSource.at(f"image:{tmp_path / name}"))
    with pytest.raises(InputMissing):
        ImageSource.at(f"image:{tmp_path / 'nothing'}")
    layout = built().layout(tmp_path / "layout")
    with pytest.raises(InputUnusable) as refused:
        listed(ImageSource.at(f"oci:{layout}:other"))
    assert "latest" in (refused.value.hint or "")
    assert listed(ImageSource.at(f"oci:{layout}:latest"))


def test_a_damaged_layer_is_said_and_the_others_are_scanned(tmp_path: Path) -> None:
    image = built()
    layout = image.layout(tmp_path / "layout")
    blob = layout / "blobs" / "sha256" / sha256(image.packed[0])
    blob.write_bytes(zipped(layer_tar({"etc/conf": b"clean"})))  # a whole layer, but another
    source = ImageSource.at(f"oci:{layout}")
    assert list(problems(source).values()) == [Problem.DAMAGED]
    found = places(source, made(str(tmp_path / "state.db")))
    assert [place for place in found if place.startswith("etc/")] == [f"etc/conf@{image.diff_ids[1][:7]}:1:1"]
    config = layout / "blobs" / "sha256" / sha256(image.config)
    config.write_bytes(config.read_bytes().replace(b"amd64", b"arm64"))
    with pytest.raises(InputUnusable, match="damaged"):
        listed(source)


def test_a_file_that_is_not_what_was_indexed_is_a_problem(tmp_path: Path) -> None:
    image = built()
    layout = image.layout(tmp_path / "layout")
    source = ImageSource.at(f"oci:{layout}")
    rows = [row for row in listed(source) if row["locator"] == b"app/deep/new"]
    tampered = zipped(layer_tar({**TOP, "app/deep/new": b"other_11"}))
    (layout / "blobs" / "sha256" / sha256(image.packed[1])).write_bytes(tampered)
    with source.open() as reader, pytest.raises(ItemProblem) as refused:
        reader.read(rows[0]["locator"], rows[0]["extra"])
    assert refused.value.code is Problem.CHANGED_WHILE_READ


def test_hostile_layers_end_in_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    entry = tarfile.TarInfo("x")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 1 << 40
    long_name = entry.tobuf() + bytes(4096)
    for blob in (b"", b"hello" * 1_000, zipped(b"x")[:-9], long_name, zstd(b"y" * 999)[:-4]):
        with pytest.raises(BrokenLayer):
            index_layer(io.BytesIO(blob), "0" * 64)
    monkeypatch.setattr(layers_module, "UNPACKED_BYTES_MAX", 1 << 20)
    bomb = layer_tar({"zeros": bytes(4 << 20)})
    with pytest.raises(BrokenLayer):
        index_layer(io.BytesIO(zipped(bomb)), sha256(bomb))


def test_entries_behind_a_broken_header_are_not_lost_in_silence() -> None:
    layer = bytearray(layer_tar({"a": b"one", "b": b"alpha_100"}))
    layer[1024 + 5] ^= 1  # in the second header
    with pytest.raises(BrokenLayer):
        index_layer(io.BytesIO(layer), sha256(bytes(layer)))


def hostile_headers() -> Iterator[bytes]:
    """Yield layers whose headers are more than they should be."""
    entry = tarfile.TarInfo("././@LongLink")
    entry.type, entry.size = tarfile.GNUTYPE_LONGNAME, 4
    yield (entry.tobuf(tarfile.GNU_FORMAT) + b"abc\0".ljust(512, b"\0")) * 2_000 + layer_tar({"a": b"b"})
    for records in ({"path": "a\0x"}, {"GNU.sparse.size": str(1 << 60), "GNU.sparse.map": "0,1"}):
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar:
            entry = tarfile.TarInfo("a")
            entry.size, entry.pax_headers = 1, records
            tar.addfile(entry, io.BytesIO(b"b"))
        yield packed.getvalue()


@pytest.mark.parametrize("layer", list(hostile_headers()), ids=["many", "zero", "sparse"])
def test_hostile_headers_are_a_broken_layer(layer: bytes) -> None:
    with pytest.raises(BrokenLayer):
        index_layer(io.BytesIO(layer), sha256(layer))


def test_hostile_names_are_escaped(tmp_path: Path) -> None:
    image = Built([{"../../etc/\x1b[31mred\n": b"alpha_100"}])
    source = ImageSource.at(f"oci:{image.layout(tmp_path / 'layout')}")
    (place,) = places(source, made(str(tmp_path / "state.db")))
    assert place == f"../../etc/\\x1b[31mred\\x0a@{image.diff_ids[0][:7]}:1:1"


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1), st.integers(0, 99))
def test_locators_are_read_back(path: str, earlier: int) -> None:
    assert parse_locator(format_locator(path, earlier)) == (path, earlier)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("docker://alpine", "docker.io/library/alpine:latest"),
        ("docker://team/app:1.2", "docker.io/team/app:1.2"),
        ("docker://ghcr.io/a/b/c", "ghcr.io/a/b/c:latest"),
        ("docker://localhost:5000/x@sha256:" + "a" * 64, "localhost:5000/x@sha256:" + "a" * 64),
    ],
)
def test_references_are_read_as_docker_reads_them(text: str, shown: str) -> None:
    assert str(parse_reference(text)) == shown
