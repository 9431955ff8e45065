"""The safetensors file: each fault is named, and the library agrees."""

import json
import struct

import numpy as np
import pytest

from fastattn.errors import CheckpointError
from fastattn.weights.containers.safetensors import parse
from tests.weights.containers.safetensors_writer import random_bert, safetensors_bytes, with_header


def entry(dtype: object = "F32", shape: object = (2,), offsets: object = (0, 8)) -> dict:
    return {"a": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def with_entries(entries: dict, body: bytes) -> bytes:
    return with_header(json.dumps(entries).encode(), body)


DAMAGED = {
    "expected 8 bytes of header length, the file has 3": b"abc",
    "header says 99 bytes, 2 follow": struct.pack("<Q", 99) + b"{}",
    "not JSON": with_header(b"{", b""),
    "not UTF-8 at byte 0": with_header(b"\xff\xff", b""),
    "the header should be a JSON object": with_header(b"[]", b""),
    "'a' is given twice": with_header(b'{"a": {}, "a": {}}', b""),
    "'a' should be an object, is 3": with_header(b'{"a": 3}', b""),
    "a tensor's name should be printable": with_header(b'{"a\\n": {}}', b""),
    "dtype should be one of F32": with_entries(entry("F31"), bytes(8)),
    "dtype is missing": with_header(b'{"a": {}}', b""),
    "shape should be a list of sizes, is [-2]": with_entries(entry(shape=[-2]), bytes(8)),
    "shape should be a list of sizes, is [True]": with_entries(entry(shape=[True]), bytes(8)),
    "shape should be at most 8 dimensions": with_entries(entry(shape=[1] * 9), bytes(8)),
    "takes 16 bytes, not 8": with_entries(entry(shape=[4]), bytes(8)),
    "shape should be sizes that the file could hold": with_entries(entry(shape=[0, 10**30], offsets=[0, 0]), b""),
    "a range within 8 bytes, is [0, 16]": with_entries(entry(shape=[4], offsets=[0, 16]), bytes(8)),
    "a range within 8 bytes, is [8, 0]": with_entries(entry(offsets=[8, 0]), bytes(8)),
    "a should begin at byte 0 of the data, begins at 4": with_entries(entry(offsets=[4, 12]), bytes(12)),
    "b should begin at byte 8 of the data, begins at 4": with_entries(
        entry() | {"b": entry(offsets=[4, 12])["a"]}, bytes(12)
    ),
    "the arrays take 8 bytes, the file has 9": with_entries(entry(), bytes(9)),
}


@pytest.mark.parametrize("fault", DAMAGED)
def test_each_fault_of_a_safetensors_file_is_named(fault: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        parse(memoryview(bytearray(DAMAGED[fault])), "x.safetensors")
    assert fault in str(caught.value) and str(caught.value).startswith("x.safetensors: ")
    assert "\n" not in str(caught.value)


def test_the_library_reads_what_the_tests_write() -> None:
    library = pytest.importorskip("safetensors.numpy")
    tensors = {
        name: value for name, value in random_bert(np.random.default_rng(5)).items() if value.dtype == np.float32
    }
    for name, value in library.load(safetensors_bytes(tensors)).items():
        np.testing.assert_array_equal(value, tensors[name])
    for name, stored in parse(memoryview(bytearray(library.save(tensors, {"format": "np"}))), "x").items():
        np.testing.assert_array_equal(stored.float32(), tensors[name])
