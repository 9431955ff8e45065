"""The safetensors file: each fault is named, and the library agrees."""

import json
import struct

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.weights.containers.safetensors import parse
from tests.messages import refused
from tests.weights.containers.safetensors_writer import random_bert, safetensors_bytes, with_header


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def with_entries(entries: dict, body: bytes) -> bytes:
    return with_header(json.dumps(entries).encode(), body)


DAMAGED = [
    b"abc", struct.pack("<Q", 99) + b"{}", struct.pack("<Q", 2**64 - 1) + b"{}", with_header(b"\xff\xff", b""),
    with_header(b"[]", b""), with_header(b'{"a": {}, "a": {}}', b""), with_header(b'{"a": 3}', b""),
    with_header(b'{"a\\n": {}}', b""), with_entries(entry("F31"), bytes(8)), with_header(b'{"a": {}}', b""),
    with_entries(entry(shape=[-2]), bytes(8)), with_entries(entry(shape=[True]), bytes(8)),
    with_entries(entry(shape=[1] * 9), bytes(8)), with_entries(entry(shape=[4]), bytes(8)),
    with_entries(entry(shape=[0, 10**30]), bytes(8)), with_entries(entry(shape=[0, 10**30], offsets=[0, 0]), b""),
    with_entries(entry(shape=[4], offsets=[0, 16]), bytes(8)), with_entries(entry(offsets=[8, 0]), bytes(8)),
    with_entries(entry(offsets=[4, 12]), bytes(12)),
    with_entries(entry() | {"b": entry(offsets=[4, 12])["a"]}, bytes(12)), with_entries(entry(), bytes(9)),
]  # fmt: skip


def test_each_fault_of_a_safetensors_file_is_named() -> None:
    for data in DAMAGED:
        with refused(CheckpointError, "x.safetensors: "):
            parse(memoryview(bytearray(data)), "x.safetensors")
    with pytest.raises(CheckpointError, match=r"^x\.safetensors: not JSON"):
        parse(memoryview(bytearray(with_header(b"{", b""))), "x.safetensors")


def test_the_library_reads_what_the_tests_write() -> None:
    library = pytest.importorskip("safetensors.numpy")
    tensors = {
        name: value for name, value in random_bert(np.random.default_rng(5)).items() if value.dtype == np.float32
    }
    for name, value in library.load(safetensors_bytes(tensors)).items():
        np.testing.assert_array_equal(value, tensors[name])
    for name, stored in parse(memoryview(bytearray(library.save(tensors, {"format": "np"}))), "x").items():
        np.testing.assert_array_equal(stored.float32(), tensors[name])
