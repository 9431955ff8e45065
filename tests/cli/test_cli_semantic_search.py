"""``fastattn search``: what it prints for float32 and packed bits, and one line for files that do not fit."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from fastattn import quantize_vectors, semantic_search
from fastattn.cli.vector_options import open_array
from fastattn.vectors.quantized import calibrated_ranges
from tests.cli.commands import run, succeed
from tests.encoders.test_encoder import WIDTH, _encoder

TEXTS = ["the cat sat", "a dog ran on the mat", "log", "the dog sat"]
QUERIES = ["a cat", "the dog"]


@pytest.fixture(scope="module")
def vectors():
    return _encoder().encode(TEXTS)


@pytest.fixture
def encoder(encoder, vectors):
    """It has a prompt for queries; its vectors of TEXTS, and TEXTS, are in the current folder."""
    np.save("v.npy", vectors)
    Path("t.txt").write_text("\n".join(TEXTS))
    return encoder


def table(found, digits, texts=None):
    lines = []
    for rank, (score, row) in enumerate(zip(*found, strict=True), start=1):
        text = "" if texts is None else f"\t{texts[row]}"
        lines.append(f"{rank}\t{score:.{digits}f}\t{row}{text}\n")
    return "".join(lines)


def test_search_prints_rank_score_row_and_text(encoder, vectors):
    query = encoder.encode(QUERIES, prompt_name="query")
    found = [semantic_search(vector, vectors, 3) for vector in query]
    common = ("search", "-m", "any", "-i", "v.npy", "-k", 3)
    assert succeed(*common, QUERIES[0]) == table(found[0], 4)
    assert succeed(*common, "--texts", "t.txt", QUERIES[0]) == table(found[0], 4, TEXTS)
    both = "".join(f"{text}\n{table(rows, 4)}" for text, rows in zip(QUERIES, found, strict=True))
    assert succeed(*common, *QUERIES) == both
    assert succeed(*common, stdin="\n".join(QUERIES).encode()) == both
    assert succeed(*common) == ""
    dots = semantic_search(query[0], vectors, 4, "dot")
    assert succeed("search", "-m", "any", "-i", "v.npy", "--score-function", "dot", QUERIES[0]) == table(dots, 4)


def test_search_writes_json_lines(encoder, vectors):
    query = encoder.encode(QUERIES, prompt_name="query")
    lines = succeed("search", "-m", "any", "-i", "v.npy", "--json", "--texts", "t.txt", *QUERIES).splitlines()
    for line, text, vector in zip(lines, QUERIES, query, strict=True):
        record, (scores, ids) = json.loads(line), semantic_search(vector, vectors)
        assert record["query"] == text
        assert [result["row"] for result in record["results"]] == ids.tolist()
        assert [np.float32(result["score"]) for result in record["results"]] == scores.tolist()
        assert [result["text"] for result in record["results"]] == [TEXTS[row] for row in ids]
    assert "text" not in succeed("search", "-m", "any", "-i", "v.npy", "--json", QUERIES[0])
    np.save("v.npy", np.full((1, WIDTH), 3e38, np.float32) * np.sign(encoder.encode("a", prompt_name="query")))
    beyond = succeed("search", "-m", "any", "-i", "v.npy", "--json", "--score-function", "dot", "a")
    assert json.loads(beyond)["results"] == [{"score": None, "row": 0}]


def test_vectors_of_other_kinds(encoder, vectors):
    """Narrower ones are compared with the first numbers, packed bits by bits, bytes by a calibration's ranges."""

    def unsigned(x):
        return np.packbits(x > 0, axis=-1)

    def signed(x):
        return (unsigned(x).astype(np.int16) - 128).astype(np.int8)

    query, ranges = encoder.encode("a cat", prompt_name="query"), calibrated_ranges(vectors, WIDTH)
    np.save("floats.npy", vectors)
    rows = [(vectors.astype(np.float16), query, "cosine", ()), (vectors[:, :5], query[:5], "cosine", ())]
    rows += [(packed(vectors), packed(query), "hamming", ()) for packed in (unsigned, signed)]
    for dtype in ("uint8", "int8"):
        asked = encoder.encode_query("a cat", output_dtype=dtype, ranges=ranges)
        rows.append((quantize_vectors(vectors, dtype, ranges), asked, "cosine", ("--calibration", "floats.npy")))
    for stored, asked, function, more in rows:
        np.save("v.npy", stored)
        found = semantic_search(asked, stored, 10, function)
        expected = table(found, 0 if function == "hamming" else 4)
        assert succeed("search", "-m", "any", "-i", "v.npy", *more, "a cat") == expected


def test_what_encode_writes_is_searched(encoder, vectors):
    np.save("floats.npy", vectors)
    kinds = [*product(("w.jsonl", "w.csv"), ("float32", "int8", "uint8", "binary", "ubinary"))]
    for other, dtype in (*kinds, ("w.NPY", "int8"), ("w.JSON", "int8"), ("w.ndjson", "int8")):
        ranges = ("--calibration", "floats.npy") if dtype in ("int8", "uint8") else ()
        for name in ("v.npy", other):
            succeed("encode", "-m", "any", "-i", "t.txt", "-o", name, "--output-dtype", dtype, *ranges)
        np.testing.assert_array_equal(open_array(other), np.load("v.npy"))
        assert open_array(other).dtype == np.load("v.npy").dtype
        found = [succeed("search", "-m", "any", "-i", name, *ranges, "a cat") for name in ("v.npy", other)]
        assert found[0] == found[1] != ""


def test_a_line_that_failed_is_not_found_nor_one_of_none(encoder):
    Path("b.txt").write_bytes(b"the cat sat\n\xff\na dog\n")
    for name in ("v.npy", "v.jsonl", "v.csv"):
        run("encode", "-m", "any", "-i", "b.txt", "-o", name, "--on-error", "mark")
        assert np.isnan(open_array(name)).all(axis=1).tolist() == [False, True, False]
        rows = [line.split("\t")[1:] for line in succeed("search", "-m", "any", "-i", name, "a cat").splitlines()]
        assert sorted(row for _, row in rows) == ["0", "2"]
        np.save(name, np.zeros((0, WIDTH), np.float32)) if name == "v.npy" else Path(name).write_text("")
        assert succeed("search", "-m", "any", "-i", name, "a cat") == ""
