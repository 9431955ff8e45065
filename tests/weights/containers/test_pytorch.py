"""PyTorch's files of tensors: as torch wrote them, damaged and hostile; that nothing in them runs."""

import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fastattn import weights
from fastattn.errors import CheckpointError
from fastattn.weights.containers import pytorch
from fastattn.weights.containers.pytorch import parse
from tests import GOLDENS, ROOT
from tests.messages import refused
from tests.weights.containers.pytorch_writer import (
    NO_HOOKS,
    STORAGE,
    call,
    dict_of,
    integer,
    name,
    pickled,
    storage,
    stream_bytes,
    tensor,
    text,
    tuple_of,
    zip_bytes,
)
from tests.weights.mutators import packed
from tests.weights.refusals import refusal
from tests.weights.sound_files import bert_files, bert_files_of_pytorch, unpacked

BASE = np.arange(24, dtype=np.float32).reshape(4, 6)
# What tests/goldens/make_torch.py saved, as float32.
SAVED = {
    "base": BASE,
    "again": BASE,
    "rows": BASE[1:3],
    "transposed": BASE.T,
    "every other": BASE[::2, 1::2],
    "parameter": np.array([[1.5, -2]], np.float32),
    "half": np.array([1.5, -2, 65504], np.float32),
    "bfloat16": np.array([[1, 4], [2, 5], [3, -6.5]], np.float32),
    "double": np.array([0.1], np.float32),
    "scalar": np.array(7, np.float32),
    "empty": np.zeros((0, 5), np.float32),
}
FOUR = np.arange(4, dtype=np.float32).tobytes()


def read(data: bytes) -> dict[str, np.ndarray]:
    stored = parse(memoryview(bytearray(data)), "here")
    return {key: value.float32() for key, value in stored.items()}


@pytest.mark.parametrize("form", ("zip", "zip4", "stream"))
def test_what_torch_saved(form: str) -> None:
    data = bytearray((GOLDENS / f"pytorch_{form}.bin").read_bytes())
    stored = parse(memoryview(data), "here")
    assert (stored.pop("integers").dtype, stored.pop("flags").dtype) == ("I64", "BOOL")
    assert set(stored) == set(SAVED)
    for key, value in SAVED.items():
        ours = stored[key].float32()
        np.testing.assert_array_equal(ours, value)
        assert ours.shape == value.shape and ours.dtype == np.float32
        assert ours.flags.c_contiguous and ours.flags.aligned and ours.flags.writeable
    # In place where they may be: what lies in the file alone is one memory for all who share it.
    assert np.shares_memory(stored["base"].float32(), stored["rows"].float32()) == (form != "stream")
    assert not np.shares_memory(stored["base"].float32(), stored["transposed"].float32())


ORDERED_DICT, REBUILD = name("collections", "OrderedDict"), name("torch._utils", "_rebuild_tensor_v2")
# What runs if it is unpickled, by each of the ways there are to run something.
SECRET = "it ran"
HOSTILE: dict[str, bytes] = {
    "os.system": call(name("os", "system"), text(f"echo {SECRET}")),
    "posix.system": call(name("posix", "system"), text(f"echo {SECRET}")),
    "builtins.eval": call(name("builtins", "eval"), text("1")),
    "__builtin__.eval": call(name("__builtin__", "eval"), text("1")),
    "by the stack": text("os") + text("system") + b"\x93" + tuple_of(text("true")) + b"R",
    "a name in pieces": text("torch") + text("_utils.os.system") + b"\x93",
    "a path through an allowed name": name("torch._utils", "_rebuild_tensor_v2.__globals__"),
    "an opcode for objects": b"(ios\nsystem\n",
    "NEWOBJ": ORDERED_DICT + b")\x81",
    "an extension": b"\x82\x01",
    "text of protocol 0": b"S'x'\n",
    "a call of a storage class": call(name("torch", "FloatStorage")),
    "a call of a dtype": call(name("torch", "float32")),
    "a call of a dict": b"})R",
    "arguments that are no tuple": name("torch", "Size") + b"]R",
    "too few arguments": call(REBUILD, text("x")),
    "arguments of other types": call(REBUILD, *map(text, "abcd"), b"\x89", NO_HOOKS),
    "hooks": call(
        REBUILD,
        storage("float32", "0", 4),
        integer(0),
        tuple_of(integer(4)),
        tuple_of(integer(1)),
        b"\x89",
        dict_of({"x": integer(1)}),
    ),
    "a parameter that is no tensor": call(name("torch._utils", "_rebuild_parameter"), text("x"), b"\x89", NO_HOOKS),
    "an OrderedDict of a tuple of pairs": call(ORDERED_DICT, tuple_of(tuple_of(text("a"), text("b")))),
    "an OrderedDict of a text of two letters": call(ORDERED_DICT, b"]" + text("ab") + b"a"),
    "an OrderedDict of keys alone": call(ORDERED_DICT, b"]" + tuple_of(text("a")) + b"a"),
    "an OrderedDict of something": call(ORDERED_DICT, text("ab")),
    "a size of text": call(name("torch", "Size"), text("ab")),
    "a negative size": call(name("torch", "Size"), tuple_of(integer(-1))),
    "attributes of a function": REBUILD + dict_of({"__code__": text("x")}) + b"b",
    "attributes in slots": NO_HOOKS + tuple_of(b"N", dict_of({"__class__": text("x")})) + b"b",
    "a persistent id of text": text("storage") + b"Q",
    "a persistent id of another kind": tuple_of(text("module"), name("torch", "Size")) + b"Q",
    "a storage of another class": tuple_of(STORAGE, ORDERED_DICT, text("0"), text("cpu"), integer(4)) + b"Q",
    "a storage of a negative size": storage("float32", "0", -4),
    "a storage with a view": storage("float32", "0", 4, tuple_of(text("1"), integer(0), integer(4))),
    "nothing on the stack": b"R",
    "no mark": b"t",
    "an unknown memo": b"h\x07",
    "items of a tuple": b")" + text("a") + text("b") + b"s",
    "a key without a value": b"}(" + text("a") + b"u",
    "a key that is no text": b"})" + text("b") + b"s",
    "protocol 9": b"\x80\x09",
    "a long integer": b"\x8b" + struct.pack("<I", 1000) + bytes(1000),
    "text beyond the end": b"X" + struct.pack("<I", 1 << 30),
    "text that is not UTF-8": b"\x8c\x01\xff",
    "an endless name": b"c" + b"a" * 1000,
    "a list": b"]",
    "a value that is no tensor": dict_of({"a": text("x")}),
    "a state dict of a storage": dict_of({"a": storage("float32", "0", 4)}),
    "a name that cannot be printed": dict_of({"a\n": tensor(storage("float32", "0", 4), (4,))}),
}


@pytest.mark.parametrize("form", ("zip", "stream"))
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_pickle_runs_nothing(
    case: str, form: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for module, attribute in ((os, "system"), (pickle, "load"), (pickle, "loads"), (pickle, "Unpickler")):
        monkeypatch.setattr(module, attribute, lambda *_, **__: pytest.fail("Python's unpickler or a shell is used"))
    body, storages = pickled(HOSTILE[case]), [("0", 4, FOUR)] if case.startswith("a name that") else []
    with refused(CheckpointError, "here: ") as caught:
        read(zip_bytes(body, {"0": FOUR}) if form == "zip" else stream_bytes(body, storages))
    assert len(str(caught.value)) < 400
    assert SECRET not in "".join(capfd.readouterr())


@pytest.mark.parametrize("pair", [lambda *items: tuple_of(*items), lambda *items: b"](" + b"".join(items) + b"e"])
def test_an_ordered_dict_of_pairs_is_a_state_dict(pair: Callable[..., bytes]) -> None:
    """As Python writes one in protocol 0 and 1."""
    whole = tensor(storage("float32", "0", 4), (4,))
    pairs = b"](" + pair(text("a"), whole) + pair(text("b"), whole) + b"e"
    arrays = read(zip_bytes(pickled(call(ORDERED_DICT, pairs)), {"0": FOUR}))
    assert sorted(arrays) == ["a", "b"]


def test_the_allow_list() -> None:
    """A change of it should be a decision."""
    known = {"collections.OrderedDict", "torch.Size", "torch._utils._rebuild_tensor_v2"}
    assert set(pytorch.CALLS) == known | {"torch._utils._rebuild_parameter"}
    others = {*pytorch.STORAGES, *pytorch.DTYPES, "argparse.Namespace"}
    numbers = {f"numpy.{core}.multiarray.{name}" for core in ("core", "_core") for name in ("scalar", "_reconstruct")}
    assert pytorch.OPAQUE == {"_codecs.encode", "numpy.dtype", "numpy.ndarray"} | numbers
    assert pytorch.GLOBALS - set(pytorch.CALLS) == others | pytorch.OPAQUE
    assert not set(pytorch.OPCODES) & {b"i", b"o", b"\x92", b"\x82", b"\x83", b"\x84", b"P", b"S", b"I"}


def nested(depth: int, pair: bytes) -> bytes:
    """Each a pair of the one before: doubled ``depth`` times, were it ever walked."""
    body = b")\x94"
    for i in range(depth):
        body += b"h" + bytes([i]) + b"h" + bytes([i]) + pair + b"\x94"
    return body


BOMBS = [
    nested(200, b"\x86"),
    b"}(" + text("a") + nested(200, b"\x86") + b"u",
    nested(200, b"\x86") + b"Q",
    nested(200, b"\x86") + call(name("torch", "Size"), b"h\xc8"),
    nested(200, b"\x86") + call(name("torch", "Size"), b"h\xc8\x85"),
    nested(200, b"\x86") + call(ORDERED_DICT, b"h\xc8\x85"),
    nested(200, b"\x86") + call(ORDERED_DICT, b"]h\xc8a"),
    b"})" + nested(200, b"\x86") + b"Ns",
    b"}" + nested(200, b"\x86") + b"Ns",
    b"]\x94h\x00h\x00a" + b"h\x00a" * 100,  # a list that holds itself
    b"}\x94" + text("a") + b"h\x00s",
    b"](" * 100_000 + b"e" * 100_000,
]
REFUSE_BOMBS = """
from tests.weights.containers.test_pytorch import BOMBS, CheckpointError, pickled, read, zip_bytes
for body in BOMBS:
    try: read(zip_bytes(pickled(body), {}))
    except CheckpointError: continue
    raise SystemExit("was read")
"""


def test_memo_bombs_end_at_once() -> None:
    """In a process of its own, which can be ended: to walk one would take for ever."""
    subprocess.run([sys.executable, "-c", REFUSE_BOMBS], cwd=ROOT, check=True, timeout=60)


def test_a_pickle_longer_than_any_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytorch, "LONGEST_PICKLE", 1000)
    with pytest.raises(CheckpointError, match="should have at most 1000 bytes"):
        read(zip_bytes(pickled(b"N" * 1001), {}))


def one(shape: tuple[int, ...], strides: tuple[int, ...] | None = None, offset: int = 0, count: int = 4) -> bytes:
    """A file of one tensor over a storage of four numbers."""
    return zip_bytes(
        pickled(dict_of({"a": tensor(storage("float32", "0", count), shape, strides, offset)})), {"0": FOUR}
    )


STREAMED = pickled(dict_of({"a": tensor(storage("float32", "k", 4, b"N"), (4,))}))
DAMAGED = [
    one((5,)), one((4,), offset=1), one((2, 2), (3, 1)), one((2,), (4,)), one((1 << 40,), (0,)), one((3, 3), (0, 1)),
    one((0,), offset=5), one((0, 1 << 40)), one((1,) * 9), one((4,), count=5), one((1,), count=1 << 62),
    zip_bytes(pickled(dict_of({"a": tensor(storage("float32", "../0", 4), (4,))})), {"0": FOUR}),
    zip_bytes(pickled(dict_of({})), {}, more={"byteorder": b"big"}), zip_bytes(pickled(dict_of({})), {}, top="a/b"),
    b"", b"PK", b"\x80\x02.", pickled(integer(7)), b"version https://git-lfs.github.com/spec/v1\n",
    packed({"archive/data.pkl": pickled(dict_of({})) * 50}), stream_bytes(STREAMED, [("k", 5, FOUR)]),
    stream_bytes(STREAMED, [("k", -1, FOUR)]), stream_bytes(STREAMED, [("other", 4, FOUR)]), stream_bytes(STREAMED, []),
    stream_bytes(STREAMED, [("k", 4, FOUR), ("k", 4, FOUR)]),
    stream_bytes(STREAMED, [("k", 4, FOUR)], keys=pickled(b"}")), stream_bytes(STREAMED, [("k", 4, FOUR[:-1])]),
    stream_bytes(STREAMED, [("k", 4, FOUR + b"x")]),
]  # fmt: skip


def test_files_that_are_refused() -> None:
    for data in DAMAGED:
        with refused(CheckpointError, "here: "):
            read(data)
    for size in (-1, 40):
        with pytest.raises(CheckpointError, match="not a sound zip archive"):
            read(one((4,))[:size])
    assert read(zip_bytes(pickled(dict_of({})), {}, more={"x/data.pkl": b""})) == {}
    np.testing.assert_array_equal(read(stream_bytes(STREAMED, [("k", 4, FOUR)]))["a"], np.arange(4))


def test_tensors_that_share_more_than_a_file_holds_are_refused() -> None:
    shared = tensor(storage("float32", "0", 4096), (64, 64), (1, 64))
    data = np.zeros(4096, np.float32).tobytes()
    items = b"".join(text(f"t{i}") + (shared + b"q\x00" if i == 0 else b"h\x00") for i in range(100))
    with pytest.raises(CheckpointError, match=r"its tensors take 1638400 bytes, more than 16 times the file's"):
        read(zip_bytes(pickled(b"}(" + items + b"u"), {"0": data}))


def test_a_storage_of_two_types_is_refused() -> None:
    parts = {"a": tensor(storage("float32", "k", 4), (4,)), "b": tensor(storage("float64", "k", 2), (2,))}
    with pytest.raises(CheckpointError, match="given with two types or sizes"):
        read(stream_bytes(pickled(dict_of(parts)), [("k", 2, FOUR)]))


def test_a_directory_by_any_of_its_files(tmp_path: Path) -> None:
    expected = weights.read(unpacked(bert_files(), tmp_path / "safetensors"))
    for form in ("zip", "stream", "shards"):
        found = weights.read(unpacked(bert_files_of_pytorch(form), tmp_path / form))
        assert (found.spec, found.precision) == (expected.spec, expected.precision)
        assert set(found.tensors) == set(expected.tensors)
        for key, value in expected.tensors.items():
            np.testing.assert_array_equal(found.tensors[key], value)
    index = tmp_path / "shards" / "pytorch_model.bin.index.json"
    index.write_text(index.read_text().replace("pytorch_model-1.bin", "../zip/pytorch_model.bin"))
    refusal(tmp_path / "shards", r"should be in a \.bin file here, is in '\.\./zip")
