"""semantic_search as its callers see it: arguments, results, files mapped into memory; similarities.

Those where float32 ends, against float64, and pair by pair; more in test_encoder_calls.py.
"""

import tracemalloc
import warnings

import numpy as np
import pytest

import fastattn
from fastattn import SearchResult, quantize_vectors, semantic_search
from fastattn.errors import InputError
from fastattn.ops import cpu as operations
from fastattn.vectors.quantized import BLOCK_NUMBERS, OUTPUT_DTYPES
from fastattn.vectors.search import PAIRWISE_SIMILARITIES, SIMILARITIES, similarity, similarity_pairwise, unit_length
from tests.messages import refused

pytestmark = pytest.mark.filterwarnings("error")
rng = np.random.default_rng(0)
CORPUS = rng.standard_normal((500, 40), np.float32)
QUERIES = rng.standard_normal((6, 40), np.float32)
BYTES, QUERY_BYTES = (rng.integers(-128, 128, (n, 40)).astype(np.int8) for n in (500, 6))


def differing(a, b):
    return np.unpackbits(a.view(np.uint8)[:, None] ^ b.view(np.uint8), axis=2).sum(axis=2, dtype=np.int64)


def test_finds_what_similarity_ranks_first():
    for function in ["cosine", "dot"]:
        found = semantic_search(QUERIES, CORPUS, 7, function)
        expected = similarity(QUERIES, CORPUS, function)
        np.testing.assert_array_equal(found.ids, np.argsort(-expected, axis=1)[:, :7])
        np.testing.assert_allclose(found.scores, -np.sort(-expected, axis=1)[:, :7], rtol=0, atol=2e-5)
        assert (found.scores.dtype, found.ids.dtype) == (np.float32, np.int64)


def test_integers_and_bits():
    for dtype in [np.int8, np.uint8]:
        corpus, queries = BYTES.view(dtype), QUERY_BYTES.view(dtype)
        wide, wide_corpus = queries.astype(np.float64), corpus.astype(np.float64)
        cosines = similarity(wide, wide_corpus)
        scores, ids = semantic_search(queries, corpus, 500)
        np.testing.assert_allclose(scores, np.take_along_axis(cosines, ids, axis=1), rtol=0, atol=1e-6)
        assert (np.diff(scores) <= 0).all()
        for function, expected in (("dot", wide @ wide_corpus.T), ("hamming", -differing(queries, corpus))):
            scores, ids = semantic_search(queries, corpus, 5, function)
            np.testing.assert_array_equal(ids, np.argsort(-expected, axis=1, kind="stable")[:, :5])
            np.testing.assert_array_equal(scores, np.take_along_axis(expected, ids, axis=1))
        one = np.eye(40, dtype=dtype)[7]
        np.testing.assert_allclose(semantic_search(one, corpus, 1)[0], similarity(one, wide_corpus).max(), atol=1e-6)


def test_a_single_vector_gives_single_results():
    whole, one = semantic_search(QUERIES, CORPUS, 3), semantic_search(QUERIES[2], CORPUS, 3)
    assert isinstance(one, SearchResult) and one.scores.shape == one.ids.shape == (3,)
    for part, single in zip(whole, one, strict=True):
        np.testing.assert_array_equal(part[2], single)
    for queries in (QUERIES[2].tolist(), QUERIES[2].astype(np.float64)):
        np.testing.assert_array_equal(semantic_search(queries, CORPUS, 3).ids, one.ids)


def test_a_small_corpus_gives_fewer_columns():
    assert semantic_search(QUERIES, CORPUS[:4]).ids.shape == (6, 4)
    assert semantic_search(QUERIES, CORPUS[:0]).scores.shape == (6, 0)
    assert semantic_search(QUERIES[0], CORPUS[:0]).ids.shape == (0,)
    assert semantic_search(QUERIES[:0], CORPUS).ids.shape == (0, 10)
    assert semantic_search(QUERIES, CORPUS).ids.shape == (6, 10)


def test_queries_of_any_size_keep_their_cosines():
    expected = semantic_search(QUERIES[0], CORPUS)
    for size in (1e-30, 1e30):
        found = semantic_search(QUERIES[0] * np.float32(size), CORPUS)
        if size > 1:
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
    assert (semantic_search(QUERIES[0] * np.float32(np.inf), CORPUS).ids == -1).all()
    np.testing.assert_array_equal(semantic_search(np.zeros(40), CORPUS).scores, np.zeros(10, np.float32))
    np.testing.assert_array_equal(semantic_search(np.zeros(40, np.int8), BYTES).scores, np.zeros(10, np.float32))


def test_neither_the_corpus_nor_all_scores_are_stored():
    corpus = np.random.default_rng(1).standard_normal((100_000, 16), np.float32)
    queries = corpus[:200]
    semantic_search(queries, corpus[:1000])
    tracemalloc.start()
    semantic_search(queries, corpus)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < corpus.nbytes / 4 < 4 * len(queries) * len(corpus)


def test_threads_are_those_asked_for(monkeypatch):
    asked = []
    monkeypatch.setattr(operations, "nearest_rows", lambda *_, **__: asked.append(operations.current_threads()))
    with fastattn.use_threads(1), pytest.raises(TypeError):
        semantic_search(QUERIES, CORPUS)
    with pytest.raises(TypeError):
        semantic_search(QUERIES, CORPUS, threads=1)
    assert asked == [1, 1]


def test_wrong_arguments_are_told():
    wide, halves = np.broadcast_to(CORPUS[:1], (1 << 32, 40)), CORPUS.astype(np.float16)
    corpora = (CORPUS.tolist(), CORPUS[0], CORPUS.astype(np.float64), CORPUS.astype(">f4"), np.asfortranarray(CORPUS))
    queries = (QUERIES[:, :39], QUERIES[None], [[1.0] * 40, [2.0]], QUERY_BYTES)
    bits = {"score_function": "hamming"}
    options = ({"score_function": "l2"}, {"top_k": 0}, {"top_k": 1.5}, {"threads": 0}, bits)
    for query, corpus, how in (
        *((QUERIES, corpus, {}) for corpus in (*corpora, BYTES, wide, np.zeros((1, 32769), np.int8))),
        *((query, CORPUS, {}) for query in queries),
        *((QUERIES, CORPUS, how) for how in options),
        (QUERIES, halves, bits), (QUERY_BYTES, halves, {}), (QUERY_BYTES, BYTES.view("u1"), {}),
        (QUERIES[:, :0], CORPUS[:, :0], {}),
    ):  # fmt: skip
        with refused(InputError):
            semantic_search(query, corpus, **how)


def test_a_corpus_of_float16_is_its_numbers():
    halves = CORPUS.astype(np.float16)
    for queries in (QUERIES, QUERIES.astype(np.float64), halves[:2]):
        for function in ("cosine", "dot"):
            found = semantic_search(queries, halves, 7, function)
            expected = semantic_search(np.float32(queries), halves.astype(np.float32), 7, function)
            np.testing.assert_array_equal(found.ids, expected.ids)
            np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-5)
            assert found.scores.dtype == np.float32


def test_other_names_of_options_are_told():
    for name in ("k", "topk", "corpus_chunk_size"):
        with refused(TypeError, name):
            semantic_search(QUERIES, CORPUS, **{name: 3})


def naive(a, b, function):
    a, b = np.atleast_2d(a).astype(np.longdouble), np.atleast_2d(b).astype(np.longdouble)
    if function == "dot":
        return a @ b.T
    if function == "cosine":
        return (a @ b.T) / np.sqrt((a**2).sum(axis=1))[:, None] / np.sqrt((b**2).sum(axis=1))
    differences = a[:, None] - b
    return -np.abs(differences).sum(axis=2) if function == "manhattan" else -np.sqrt((differences**2).sum(axis=2))


def test_vectors_of_any_size():
    for size in [1e10, 1e18, 1e20, 1e30, 3e38, 1e100]:
        for function in SIMILARITIES:
            random = np.random.default_rng(1)
            a, b = random.uniform(-1, 1, (3, 8)), random.uniform(-1, 1, (2, 8))
            kind = np.float32 if size < 1e39 else np.float64
            a, b = (np.concatenate([x * size, x]).astype(kind) for x in (a, b))
            with np.errstate(over="ignore"):
                expected = naive(a, b, function).astype(np.float32)
            found = similarity(a, b, function)
            assert found.dtype == np.float32
            allowance = {"rtol": 2e-5, "atol": 2e-6 if function == "cosine" else 1e-5}
            np.testing.assert_allclose(found, expected, **allowance)
            pairs = similarity_pairwise(a[:4], b, function)
            assert pairs.dtype == np.float32 and pairs.shape == (4,)
            np.testing.assert_allclose(pairs, np.diag(expected[:4]), **allowance)


def test_a_large_row_changes_no_bit_of_the_others():
    x = np.random.default_rng(2).standard_normal((3, 8)).astype(np.float32)
    expected = unit_length(x)
    mixed = np.concatenate([x, x[:1] * np.float32(1e30), np.full((2, 8), np.inf, np.float32)])
    mixed[5] = 0
    with np.errstate(invalid="ignore"):
        found = unit_length(mixed)
    np.testing.assert_array_equal(found[:3], expected)
    np.testing.assert_allclose(found[3], expected[0], rtol=1e-6)
    assert not found[5].any()


def test_pairs_have_the_same_functions():
    assert set(PAIRWISE_SIMILARITIES) == set(SIMILARITIES)
    large = np.array([1e30, 1e30], np.float32)
    apart = large * np.array([1, -1], np.float32)
    assert similarity_pairwise(large, apart, "dot").tolist() == similarity(large, apart, "dot")[0].tolist() == [0]
    assert similarity_pairwise(np.zeros((0, 3)), np.zeros((0, 3))).shape == (0,)


def test_neighbours_change_no_bit_of_a_pair():
    a, b = np.random.default_rng(3).standard_normal((2, 50, 77), np.float32)
    for function in SIMILARITIES:
        together = similarity_pairwise(a, b, function)
        alone = [similarity_pairwise(a[n], b[n], function)[0] for n in range(50)]
        np.testing.assert_array_equal(together, alone)


def test_what_are_no_pairs():
    for a, b, how in (((2, 3), (1, 3), "cosine"), ((2, 3), (2, 4), "cosine"), (3, 3, "best")):
        with refused(InputError):
            similarity_pairwise(np.zeros(a), np.zeros(b), how)


def test_pairs_are_those_of_sentence_transformers():
    theirs = pytest.importorskip("sentence_transformers.util.similarity")
    a, b = np.random.default_rng(4).standard_normal((2, 9, 33), np.float32)
    for function, name in zip(SIMILARITIES, ("cos_sim", "dot_score", "euclidean_sim", "manhattan_sim"), strict=True):
        expected = getattr(theirs, f"pairwise_{name}")(a, b).numpy()
        np.testing.assert_allclose(similarity_pairwise(a, b, function), expected, rtol=1e-5, atol=1e-5)


RANGES = np.array([[0, -1, 5], [255, 1, 5]], np.float32)  # steps of 1 and of 2 / 255; no range at all


def quantized(rows, output_dtype, ranges):
    if output_dtype.endswith("binary"):
        padded = np.pad(rows > 0, ((0, 0), (0, -rows.shape[1] % 8))).reshape(len(rows), -1, 8)
        codes = (padded * 2 ** np.arange(7, -1, -1)).sum(axis=2)
    else:
        ranges = ranges.astype(np.float32)
        steps = (ranges[1] - ranges[0]) / np.float32(255)
        codes = np.clip(np.floor((rows - ranges[0]) / np.where(steps, steps, np.float32(1))), 0, 255).astype(int)
    unsigned = output_dtype.startswith("u")
    return codes.astype(np.uint8) if unsigned else (codes - 128).astype(np.int8)


def test_steps_by_hand():
    vectors = np.array([[0, -1, 5], [0.99, -0.9921, 5.5], [1, 0, 6], [254.9, 1.01, 4], [300, 2, 300], [-1, -9, 5]])
    expected = [[0, 0, 0], [0, 1, 0], [1, 127, 1], [254, 255, 0], [255, 255, 255], [0, 0, 0]]
    for kind in (np.float32, np.float64):
        unsigned = quantize_vectors(vectors.astype(kind), "uint8", RANGES)
        assert unsigned.dtype == np.uint8
        np.testing.assert_array_equal(unsigned, expected)
        signed = quantize_vectors(vectors.astype(kind), "int8", RANGES)
        assert signed.dtype == np.int8
        np.testing.assert_array_equal(signed, np.array(expected) - 128)


def test_bits_by_hand():
    vectors = np.array([[1, 0, -1, 2, 0, 0, 0, 0.5, 3], [-1, 1, 1, 1, 1, 1, 1, 1, -0.0]], np.float32)
    unsigned, signed = quantize_vectors(vectors, "ubinary"), quantize_vectors(vectors, "binary")
    assert (unsigned.dtype, signed.dtype) == (np.uint8, np.int8)
    np.testing.assert_array_equal(unsigned, [[0b10010001, 0b10000000], [0b01111111, 0]])
    np.testing.assert_array_equal(signed, [[0b10010001 - 128, 0], [0b01111111 - 128, -128]])


@pytest.mark.parametrize("width, kind", [(1, "f4"), (7, "f8"), (8, "f2"), (384, "f4"), (BLOCK_NUMBERS + 1, "f4")])
@pytest.mark.parametrize("output_dtype", OUTPUT_DTYPES[1:])
def test_blocks_and_widths(output_dtype, width, kind):
    """Fewer rows than a block, as many, and one more; a view that is not contiguous."""
    rng, together = np.random.default_rng(0), max(1, BLOCK_NUMBERS // width)
    for rows in {1, 2, together, together + 1} if width > 7 else {2, 3}:
        vectors = rng.standard_normal((rows, 2 * width), np.float32).astype(kind)[:, ::2]
        sample = rng.standard_normal((20, width), np.float32).astype(kind)
        ranges = np.stack([sample.min(axis=0), sample.max(axis=0)])
        expected = quantized(vectors, output_dtype, ranges)
        for given in ({"ranges": ranges}, {"calibration": sample}):
            found = quantize_vectors(vectors, output_dtype, **given)
            assert found.dtype == expected.dtype
            np.testing.assert_array_equal(found, expected)
        np.testing.assert_array_equal(quantize_vectors(vectors[0], output_dtype, ranges), expected[0])


def test_without_ranges_they_are_the_vectors_own():
    vectors = np.random.default_rng(1).standard_normal((100, 5), np.float32)
    codes = quantize_vectors(vectors, "uint8")
    np.testing.assert_array_equal([codes.min(axis=0), codes.max(axis=0)], [[0] * 5, [255] * 5])
    np.testing.assert_array_equal(codes, quantize_vectors(vectors, "uint8", calibration=vectors))
    with pytest.warns(UserWarning, match="int8 by the ranges of 99 vectors") as told:
        quantize_vectors(vectors[:99], "int8")
    assert [warning.filename for warning in told] == [__file__]


def test_float32_is_a_copy_and_nothing_stays_nothing():
    vectors = np.ones((2, 3), np.float32)
    copied = quantize_vectors(vectors, "float32")
    copied[:] = 0
    assert vectors.all()
    assert quantize_vectors(np.array([1e300]), "float32") == np.inf
    for output_dtype, width in (("int8", 9), ("uint8", 9), ("binary", 2), ("ubinary", 2)):
        none = quantize_vectors(np.zeros((0, 9)), output_dtype)
        assert none.shape == (0, width) and none.dtype == ("uint8" if output_dtype.startswith("u") else "int8")


def test_numbers_that_are_not_finite():
    vectors = np.array([np.nan, np.inf, -np.inf, 3e38])
    ranges = np.array([[-1e38] * 4, [1e38] * 4], np.float32)
    np.testing.assert_array_equal(quantize_vectors(vectors, "uint8", ranges), [0, 255, 0, 255])
    np.testing.assert_array_equal(quantize_vectors(vectors, "ubinary"), [0b01010000])


def test_what_it_does_not_take():
    kinds = ("int4", np.dtype("uint8"), None, ["int8"])
    vectors = (np.ones((2, 3), np.int8), np.ones((1, 2, 3)), [[1.0], [2.0, 3.0]], np.ones((1, 3)), np.ones(3))
    ranges = (RANGES[:, :2], RANGES[::-1], RANGES * np.nan, [[-3e38] * 3, [3e38] * 3], [[-1e300] * 3, [3.0] * 3])
    for given in (
        *({"output_dtype": kind} for kind in kinds),
        *({"vectors": value} for value in (*vectors, np.full((100, 3), np.nan))),
        *({"ranges": value} for value in ranges),
        *({"calibration": value} for value in (RANGES[:0], RANGES[0])),
        {"ranges": RANGES, "calibration": RANGES},
    ):
        with refused(InputError):
            quantize_vectors(**{"vectors": np.ones((2, 3)), "output_dtype": "int8", **given})


def test_numbers_are_those_of_sentence_transformers():
    theirs = pytest.importorskip("sentence_transformers.util.quantization")
    for scale in [1e-3, 1.0, 100.0]:
        for output_dtype in OUTPUT_DTYPES:
            rng = np.random.default_rng(2)
            vectors = (rng.standard_normal((300, 77)) * scale).astype(np.float32)
            vectors[:, 3] = 0
            sample = (rng.standard_normal((50, 77)) * scale / 2).astype(np.float32)
            ranges = np.stack([sample.min(axis=0), sample.max(axis=0)])
            calibrated = {"calibration": sample}, {"calibration_embeddings": sample}
            for ours, given in (({}, {}), ({"ranges": ranges},) * 2, calibrated):
                expected = theirs.quantize_embeddings(vectors, output_dtype, **given)
                found = quantize_vectors(vectors, output_dtype, **ours)
                assert found.dtype == expected.dtype
                np.testing.assert_array_equal(found, expected)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found = quantize_vectors(vectors[:9], output_dtype)
                expected = theirs.quantize_embeddings(vectors[:9], output_dtype)
            np.testing.assert_array_equal(found, expected)
