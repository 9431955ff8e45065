"""Marian's shortlists, binary and text: what is read, and what is refused with one line."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Shortlist
from fastattn.weights.containers.shortlist import read_shortlist
from fastattn.weights.folder import Directory
from tests.messages import refused
from tests.weights.containers.shortlist_writer import binary_shortlist, hash_words

SOURCES = ("</s>", "<unk>", "a", "b", "c", "d")
TARGETS = ("</s>", "<unk>", "v", "w", "x", "y", "z", "\u3000")
PACKED = gzip.compress(b"v a 0.5\n" * 9)
LISTS = [[], [], [7, 2, 5], [], [3], [5, 6]]


def read(path: Path, data: bytes, sources=SOURCES, targets=TARGETS, shared: bool = False) -> Shortlist:
    (path / "lex.bin").write_bytes(data)
    return read_shortlist(Directory(path), "lex.bin", sources, targets, shared)


def lists_of(shortlist: Shortlist) -> list[list[int]]:
    bounds = shortlist.starts_V1.tolist()
    assert bounds == sorted(bounds)
    return [shortlist.targets[a:b].tolist() for a, b in zip(bounds, bounds[1:])]


def test_binary(tmp_path: Path) -> None:
    shortlist = read(tmp_path, binary_shortlist(3, LISTS))
    assert shortlist.always.tolist() == [0, 1, 2] and not shortlist.copied
    assert lists_of(shortlist) == LISTS
    assert {array.dtype for array in (shortlist.always, shortlist.starts_V1, shortlist.targets)} == {np.dtype(np.int32)}
    assert read(tmp_path, binary_shortlist(3, LISTS), shared=True).copied


def test_binary_odd_and_even_numbers_of_ids(tmp_path: Path) -> None:
    """Half a word at the end is in no checksum, as with Marian."""
    for ids in range(4):
        data = binary_shortlist(1, [[2] * ids] + [[]] * 5)
        assert lists_of(read(tmp_path, data))[0] == [2] * ids
    assert read(tmp_path, binary_shortlist(1, [[2, 3, 4]])[:-4] + b"\5\0\0\0").targets.tolist() == [2, 3, 5]


def test_more_words_than_the_vocabulary_may_always_be_chosen(tmp_path: Path) -> None:
    assert read(tmp_path, binary_shortlist(2**63, LISTS)).always.tolist() == list(range(8))


def test_source_ids_past_the_last_offset_add_nothing(tmp_path: Path) -> None:
    """Marian's converter ends with the last source id that has targets."""
    assert lists_of(read(tmp_path, binary_shortlist(1, LISTS[:3]))) == LISTS[:3] + [[]] * 3


def test_the_hash_is_the_one_of_marians_source() -> None:
    """The constant is of marian-dev's src/common/hash.h, compiled with GCC; two real files agree too."""
    assert hash_words(bytes(range(256))) == 0x652BF93D194FECDF


DAMAGED = [
    binary_shortlist(3, LISTS)[:40], binary_shortlist(3, LISTS)[:-1], binary_shortlist(3, LISTS) + b"\0",
    binary_shortlist(3, LISTS, offsets=2**63), binary_shortlist(3, LISTS, ids=2**64 - 1),
    binary_shortlist(3, LISTS, offsets=0, ids=20), binary_shortlist(3, LISTS, checksum=1),
    binary_shortlist(4, LISTS)[:16] + binary_shortlist(3, LISTS)[16:], binary_shortlist(3, [*LISTS, []]),
    binary_shortlist(3, [[8]]), binary_shortlist(3, [[2**32 - 1]]), binary_shortlist(3, LISTS, offsets=6, ids=8),
    binary_shortlist(3, LISTS, magic=1), b"v a\n", b"v a 0.5\nw a half\n", b"v a nan", b"v a 0.5 6\n", b"v" * 200_000,
]  # fmt: skip


def test_refused_with_one_line(tmp_path: Path) -> None:
    for data in DAMAGED:
        with refused(CheckpointError, f"{tmp_path / 'lex.bin'}: "):
            read(tmp_path, data)
    with refused(CheckpointError):
        read(tmp_path, binary_shortlist(3, [*LISTS, [9], []]), targets=TARGETS[:6])
    with refused(CheckpointError):  # nothing but a vocabulary as large can be copied to
        read(tmp_path, binary_shortlist(1, []), targets=TARGETS[:5], shared=True)


@pytest.mark.parametrize("data", [PACKED[:-9], PACKED[:-9] + b"\0" * 9, PACKED[:2]])
def test_what_cannot_be_unpacked(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CheckpointError, match=r"lex\.bin: cannot be unpacked: [^\n]*$"):
        read(tmp_path, data)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text(tmp_path: Path, pack) -> None:
    """A later line replaces an earlier one, NULL and improbable targets are left out, what is unknown is <unk>."""
    lines = (
        "v a 0.1\nw a 0.9\nv\ta  0.2\r\n\nNULL a 0.9\nv NULL 0.9\nx a 0\ny a -1\nz new 0.5\nnew b 1e-9\n\u3000 d 1\n"
    )
    shortlist = read(tmp_path, pack(lines.encode()))
    assert lists_of(shortlist) == [[], [6], [2, 3], [1], [], [7]]
    assert shortlist.always.tolist() == list(range(8))  # the first 100
    assert shortlist.targets.dtype == np.int32


def test_text_keeps_the_hundred_most_probable(tmp_path: Path) -> None:
    vocabulary = tuple(f"t{i}" for i in range(300))
    lines = "".join(f"t{i} t7 {(i * 7 % 250 + 1) / 250}\n" for i in range(250))
    shortlist = read(tmp_path, lines.encode(), vocabulary, vocabulary)
    best = sorted(range(250), key=lambda i: -(i * 7 % 250))[:100]
    assert lists_of(shortlist)[7] == sorted(best)
    assert len(shortlist.targets) == 100 and shortlist.always.tolist() == list(range(100))


def test_of_equally_probable_targets_the_last_are_kept(tmp_path: Path) -> None:
    """As Marian's sort of pairs has it: by probability, then by id."""
    vocabulary = tuple(f"t{i}" for i in range(130))
    lines = "t7 t3 0.9\n" + "".join(f"t{i} t3 0.5\n" for i in range(10, 130))
    assert lists_of(read(tmp_path, lines.encode(), vocabulary, vocabulary))[3] == [7, *range(31, 130)]


def test_text_without_an_unknown_token_leaves_unknown_words_out(tmp_path: Path) -> None:
    assert lists_of(read(tmp_path, b"v a 1\nq a 1\nv q 1", ("a",), ("v",))) == [[0]]
