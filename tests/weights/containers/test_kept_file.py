"""What is made of a checkpoint's files once and kept in the cache: found again, and made again where it is damaged."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from fastattn.weights.containers import shortlist as shortlists
from fastattn.weights.containers.kept_file import WORTHWHILE, kept_arrays
from fastattn.weights.folder import Directory
from fastattn.weights.marian import text as marian_text
from tests.weights.containers.shortlist_writer import binary_shortlist

SOURCE = bytes(range(256)) * (WORTHWHILE // 256)
ARRAYS = {"a": np.arange(100, dtype=np.int32), "b": np.arange(7, dtype=np.int8)}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FASTATTN_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packed"


def kept(source=SOURCE, kind="things", made=None):
    def make():
        if made is not None:
            made.append(1)
        return ARRAYS

    return kept_arrays([source, b"more"], kind, "model/vocab.spm", make)


def never():
    raise AssertionError("made a second time")


def assert_equal(found):
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_a_later_call_maps_what_the_first_made(folder):
    assert_equal(kept())
    (path,) = folder.iterdir()
    assert b'"checkpoint":' + json.dumps(os.path.abspath("model/vocab.spm")).encode() in path.read_bytes()
    assert_equal(kept_arrays([SOURCE, b"more"], "things", "elsewhere", never))


def test_other_bytes_divided_otherwise_or_of_another_kind_are_made_anew():
    made: list[int] = []
    kept(made=made)
    kept(SOURCE + b"x", made=made)
    kept(kind="others", made=made)
    kept_arrays([SOURCE + b"m", b"ore"], "things", "", lambda: made.append(1) or ARRAYS)
    assert len(made) == 4


def test_what_is_made_quickly_is_not_kept(folder):
    assert_equal(kept(b"short"))
    assert not folder.exists()


@pytest.mark.parametrize("damage", ["cut", "bit", "empty", "writable by others"])
def test_a_damaged_or_foreign_file_is_made_anew(folder, damage):
    kept()
    (path,) = folder.iterdir()
    data = bytearray(path.read_bytes())
    data[-80] ^= 1
    if damage == "writable by others":
        if os.name == "nt":
            pytest.skip("POSIX permissions")
        path.chmod(0o666)
    else:
        path.write_bytes({"cut": data[:-10], "bit": data, "empty": b""}[damage])
    made: list[int] = []
    with pytest.warns(UserWarning, match="it is made anew"):
        assert_equal(kept(made=made))
    assert made == [1]
    assert_equal(kept_arrays([SOURCE, b"more"], "things", "", never))


def test_a_shortlist_is_checked_once(tmp_path, monkeypatch):
    words = 1500
    lists = [[(7 * s + n) % words for n in range(s % 30)] for s in range(words)]
    vocabulary = tuple(map(str, range(words)))
    (tmp_path / "lex.bin").write_bytes(binary_shortlist(5, lists))

    def read(*vocabularies):
        return shortlists.read_shortlist(Directory(tmp_path), "lex.bin", *vocabularies, False)

    first = read(vocabulary, vocabulary)
    assert [first.targets[a:b].tolist() for a, b in zip(first.starts_V1, first.starts_V1[1:])] == lists
    monkeypatch.setattr(shortlists, "_checksum", lambda data: never())
    again = read(vocabulary, vocabulary)
    for name in ("always", "starts_V1", "targets"):
        np.testing.assert_array_equal(getattr(again, name), getattr(first, name))
    with pytest.raises(AssertionError, match="second time"):  # they have to fit this one too
        read(vocabulary, (*vocabulary, "more"))


def test_a_vocabulary_is_loaded_once(monkeypatch):
    pieces = ["<unk>", "</s>", "\u2581a\n", "", "é"]

    class Loaded:
        vocabulary = pieces

        def __init__(self, model):
            loaded.append(model)

    loaded: list[bytes] = []
    monkeypatch.setattr(marian_text, "SentencePiece", Loaded)
    assert marian_text._pieces(SOURCE, "vocab.spm") == marian_text._pieces(SOURCE, "vocab.spm") == pieces
    assert loaded == [SOURCE]
