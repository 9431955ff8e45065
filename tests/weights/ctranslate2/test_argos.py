"""Argos packages: the archive and its unpacked form read alike; archives that lie are refused."""

import io
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from tests.messages import refused
from tests.weights.ctranslate2 import writer
from tests.weights.ctranslate2.argos_writer import METADATA, pack
from tests.weights.refusals import refusal


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """An unpacked package."""
    path = tmp_path / "translate-ar_en"
    writer.write_model(path / "model", writer.quantize(writer.random_transformer(np.random.default_rng(3)), "int8"))
    writer.write_vocabularies(path / "model", writer.vocabulary(23), writer.vocabulary(19))
    writer.write_config(path / "model")
    (path / "metadata.json").write_text(METADATA)
    (path / "sentencepiece.model").write_bytes(b"pieces")
    (path / "README.md").write_text("words")
    return path


@pytest.mark.parametrize("method", (zipfile.ZIP_DEFLATED, zipfile.ZIP_STORED))
@pytest.mark.parametrize("top", ("translate-ar_en/", ""))
def test_an_archive_reads_like_its_folder(package: Path, top: str, method: int) -> None:
    unpacked, packed = weights.read(package), weights.read(pack(package, top, method))
    assert unpacked.format == packed.format == "argos"
    assert unpacked.spec == packed.spec and unpacked.text == packed.text
    expected = writer.as_float32(unpacked.tensors)
    for name, tensor in writer.as_float32(packed.tensors).items():
        np.testing.assert_array_equal(tensor, expected[name])
    text = packed.text
    assert (text.source_language, text.target_language) == ("ar", "en")
    assert text.source_model == text.target_model == b"pieces"
    assert packed.details["from name"] == "Arabic" and packed.details["package version"] == "1.0"


def refuse(path: Path) -> None:
    with refused(CheckpointError, str(path)):
        weights.read(path)


def test_packages_that_are_refused_by_name(package: Path) -> None:
    for metadata in ('{"type": "sbd"}', '{"target_prefix": "__fr__"}', "[]"):
        (package / "metadata.json").write_text(metadata)
        refuse(package)
    (package / "metadata.json").write_text(METADATA)
    (package / "sentencepiece.model").unlink()
    refuse(package)


def test_codes_and_a_prefix(package: Path) -> None:
    """As in Argos Translate: words by Moses' rules, then codes; the prefix is no part of the translation."""
    (package / "sentencepiece.model").unlink()
    (package / "bpe.model").write_bytes(b"#version: 0.2\nl o\n")
    (package / "metadata.json").write_text('{"target_prefix": "\u2581w4", "from_code": "ar", "to_code": "en"}')
    text = weights.read(package).text
    assert (text.codes, text.words, text.source_model) == (b"#version: 0.2\nl o\n", "argos", None)
    assert text.decoding.forced_tokens == ("▁w4",)


def test_archives_without_the_files(package: Path) -> None:
    (package / "model" / "model.bin").unlink()
    refuse(pack(package))
    (package / "metadata.json").unlink()
    refuse(pack(package))


def test_members_outside_the_archive(package: Path) -> None:
    for name in ("../evil", "/etc/evil", "a/../../evil", "C:/evil", "a\\..\\evil"):
        path = pack(package)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(name, "x")
        refuse(path)


def test_members_given_twice_and_too_many(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pack(package)
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("translate-ar_en/README.md", "again")
    refuse(path)
    monkeypatch.setattr("fastattn.weights.containers.zip_archive.MOST_MEMBERS", 4)
    refuse(path)


def edit_directory(data: bytes, name: str, offset: int, form: str, value: int) -> bytes:
    """Change one number of a member's entry in the central directory."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        start = archive.start_dir
    place = data.index(name.encode(), start) - 46
    assert data[place : place + 4] == b"PK\1\2"
    edited = bytearray(data)
    struct.pack_into("<" + form, edited, place + offset, value)
    return bytes(edited)


@pytest.mark.parametrize(
    "offset, form, value, fault",
    [
        (8, "H", 1, "is encrypted"), (10, "H", 12, "should be stored or deflated, has type 12"),
        (16, "I", 1, "cannot be unpacked"), (20, "I", 0x7FFFFFFF, "more than the archive"),
        (24, "I", 0x7FFFFFFF, "more than 20 times"), (24, "I", 5, "cannot be unpacked"),
        (24, "I", 200_000, "expected 200000 bytes, got|cannot be unpacked"), (42, "I", 3, "cannot be unpacked"),
    ],
)  # fmt: skip
def test_archives_that_lie(package: Path, offset: int, form: str, value: int, fault: str) -> None:
    path = pack(package)
    path.write_bytes(edit_directory(path.read_bytes(), "translate-ar_en/model/model.bin", offset, form, value))
    refusal(path, fault)


def test_a_member_that_grows_too_much(package: Path) -> None:
    (package / "sentencepiece.model").write_bytes(bytes(3 << 20))
    refusal(pack(package), "unpacks to [0-9]+ bytes, more than 20 times")


def test_damaged_archives(package: Path) -> None:
    path = pack(package)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    refusal(path, "not a zip archive")
    path.write_bytes(b"")
    refusal(path, "not a zip archive")
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        entry = archive.getinfo("translate-ar_en/model/model.bin")
    damaged = bytearray(whole)
    middle = entry.header_offset + 30 + len(entry.filename) + entry.compress_size // 2
    damaged[middle : middle + 8] = bytes(8)
    path.write_bytes(damaged)
    refusal(path, r"model\.bin: cannot be unpacked")
