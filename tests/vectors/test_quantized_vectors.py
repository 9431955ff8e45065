"""quantize_vectors: by hand, against the formula, against sentence-transformers where that is installed."""

import warnings

import numpy as np
import pytest

from fastattn import quantize_vectors
from fastattn.errors import InputError
from fastattn.vectors.quantized import BLOCK, OUTPUT_DTYPES

RANGES = np.array([[0, -1, 5], [255, 1, 5]], np.float32)  # steps of 1 and of 2 / 255; no range at all


def _naive(rows: np.ndarray, output_dtype: str, ranges: np.ndarray) -> np.ndarray:
    if output_dtype.endswith("binary"):
        padded = np.pad(rows > 0, ((0, 0), (0, -rows.shape[1] % 8))).reshape(len(rows), -1, 8)
        codes = (padded * 2 ** np.arange(7, -1, -1)).sum(axis=2)
    else:
        ranges = ranges.astype(np.float32)
        steps = (ranges[1] - ranges[0]) / np.float32(255)
        codes = np.clip(np.floor((rows - ranges[0]) / np.where(steps, steps, np.float32(1))), 0, 255).astype(int)
    unsigned = output_dtype.startswith("u")
    return codes.astype(np.uint8) if unsigned else (codes - 128).astype(np.int8)


def test_steps_by_hand() -> None:
    vectors = np.array([[0, -1, 5], [0.99, -0.9921, 5.5], [1, 0, 6], [254.9, 1.01, 4], [300, 2, 300], [-1, -9, 5]])
    expected = [[0, 0, 0], [0, 1, 0], [1, 127, 1], [254, 255, 0], [255, 255, 255], [0, 0, 0]]
    for kind in (np.float32, np.float64):
        unsigned = quantize_vectors(vectors.astype(kind), "uint8", RANGES)
        assert unsigned.dtype == np.uint8
        np.testing.assert_array_equal(unsigned, expected)
        signed = quantize_vectors(vectors.astype(kind), "int8", RANGES)
        assert signed.dtype == np.int8
        np.testing.assert_array_equal(signed, np.array(expected) - 128)


def test_bits_by_hand() -> None:
    vectors = np.array([[1, 0, -1, 2, 0, 0, 0, 0.5, 3], [-1, 1, 1, 1, 1, 1, 1, 1, -0.0]], np.float32)
    unsigned, signed = quantize_vectors(vectors, "ubinary"), quantize_vectors(vectors, "binary")
    assert (unsigned.dtype, signed.dtype) == (np.uint8, np.int8)
    np.testing.assert_array_equal(unsigned, [[0b10010001, 0b10000000], [0b01111111, 0]])
    np.testing.assert_array_equal(signed, [[0b10010001 - 128, 0], [0b01111111 - 128, -128]])


@pytest.mark.parametrize(
    ("width", "kind"), [(1, np.float32), (7, np.float64), (8, np.float16), (384, np.float32), (BLOCK + 1, np.float32)]
)
@pytest.mark.parametrize("output_dtype", OUTPUT_DTYPES[1:])
def test_blocks_and_widths(output_dtype: str, width: int, kind: type) -> None:
    """Fewer rows than a block, as many, and one more; a view that is not contiguous."""
    rng, together = np.random.default_rng(0), max(1, BLOCK // width)
    for rows in {1, 2, together, together + 1} if width > 7 else {2, 3}:
        vectors = rng.standard_normal((rows, 2 * width), np.float32).astype(kind)[:, ::2]
        sample = rng.standard_normal((20, width), np.float32).astype(kind)
        ranges = np.stack([sample.min(axis=0), sample.max(axis=0)])
        expected = _naive(vectors, output_dtype, ranges)
        for given in ({"ranges": ranges}, {"calibration": sample}):
            found = quantize_vectors(vectors, output_dtype, **given)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(quantize_vectors(vectors[0], output_dtype, ranges), expected[0])


def test_without_ranges_they_are_the_vectors_own() -> None:
    vectors = np.random.default_rng(1).standard_normal((100, 5), np.float32)
    codes = quantize_vectors(vectors, "uint8")
    np.testing.assert_array_equal([codes.min(axis=0), codes.max(axis=0)], [[0] * 5, [255] * 5])
    np.testing.assert_array_equal(codes, quantize_vectors(vectors, "uint8", calibration=vectors))
    with pytest.warns(UserWarning, match="int8 by the ranges of 99 vectors") as told:
        quantize_vectors(vectors[:99], "int8")
    assert [warning.filename for warning in told] == [__file__]


def test_float32_is_a_copy_and_nothing_stays_nothing() -> None:
    vectors = np.ones((2, 3), np.float32)
    copied = quantize_vectors(vectors, "float32")
    copied[:] = 0
    assert vectors.all()
    assert quantize_vectors(np.array([1e300]), "float32") == np.inf
    for output_dtype, width in (("int8", 9), ("uint8", 9), ("binary", 2), ("ubinary", 2)):
        none = quantize_vectors(np.zeros((0, 9)), output_dtype)
        assert none.shape == (0, width) and none.dtype == ("uint8" if output_dtype.startswith("u") else "int8")


def test_numbers_that_are_not_finite() -> None:
    vectors = np.array([np.nan, np.inf, -np.inf, 3e38])
    ranges = np.array([[-1e38] * 4, [1e38] * 4], np.float32)
    np.testing.assert_array_equal(quantize_vectors(vectors, "uint8", ranges), [0, 255, 0, 255])
    np.testing.assert_array_equal(quantize_vectors(vectors, "ubinary"), [0b01010000])


def test_what_it_does_not_take() -> None:
    for arguments, message in [
        ({"output_dtype": "int4"}, "unknown output_dtype 'int4'; known: float32, int8, uint8, binary, ubinary"),
        ({"output_dtype": np.dtype("uint8")}, "unknown output_dtype dtype"),
        ({"output_dtype": None}, "unknown output_dtype None"),
        ({"output_dtype": ["int8"]}, "unknown output_dtype"),
        ({"vectors": np.ones((2, 3), np.int8)}, r"vectors should be floating-point, .* got int8 of shape \(2, 3\)"),
        ({"vectors": np.ones((1, 2, 3))}, r"got float64 of shape \(1, 2, 3\)"),
        ({"vectors": [[1.0], [2.0, 3.0]]}, "got lists of different lengths"),
        ({"vectors": np.ones((1, 3))}, "int8 of a single vector needs ranges"),
        ({"vectors": np.ones(3)}, "int8 of a single vector needs ranges"),
        ({"ranges": RANGES, "calibration": RANGES}, "give ranges or calibration, not both"),
        ({"ranges": RANGES[:, :2]}, r"ranges of shape \(2, 3\) are expected, got \(2, 2\)"),
        ({"ranges": RANGES[::-1]}, "got one that begins above its end"),
        ({"ranges": RANGES * np.nan}, "not finite"),
        ({"ranges": [[-3e38] * 3, [3e38] * 3]}, "too far apart"),
        ({"ranges": [[-1e300] * 3, [3.0] * 3]}, "not finite"),
        ({"calibration": RANGES[:0]}, r"calibration of shape \(M, 3\) is expected, got \(0, 3\)"),
        ({"calibration": RANGES[0]}, r"calibration of shape \(M, 3\) is expected, got \(3,\)"),
        ({"vectors": np.full((100, 3), np.nan)}, "not finite"),
    ]:
        with pytest.raises(InputError, match=message) as caught:
            quantize_vectors(**{"vectors": np.ones((2, 3)), "output_dtype": "int8", **arguments})
        assert "\n" not in str(caught.value)


def test_numbers_are_those_of_sentence_transformers() -> None:
    for scale in [1e-3, 1.0, 100.0]:
        for output_dtype in OUTPUT_DTYPES:
            theirs = pytest.importorskip("sentence_transformers.util.quantization")
            rng = np.random.default_rng(2)
            vectors = (rng.standard_normal((300, 77)) * scale).astype(np.float32)
            vectors[:, 3] = 0
            sample = (rng.standard_normal((50, 77)) * scale / 2).astype(np.float32)
            ranges = np.stack([sample.min(axis=0), sample.max(axis=0)])
            for ours, given in (
                ({}, {}),
                ({"ranges": ranges},) * 2,
                ({"calibration": sample}, {"calibration_embeddings": sample}),
            ):
                expected = theirs.quantize_embeddings(vectors, output_dtype, **given)
                found = quantize_vectors(vectors, output_dtype, **ours)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found, expected = (
                    quantize_vectors(vectors[:9], output_dtype),
                    theirs.quantize_embeddings(vectors[:9], output_dtype),
                )
            np.testing.assert_array_equal(found, expected)
