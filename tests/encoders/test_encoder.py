"""The public Encoder on a tiny model; what surrounds the rows follows sentence-transformers' definitions."""

import io
import sys
import threading
from dataclasses import replace
from functools import partial
from itertools import count, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from fastattn import quantize_vectors
from fastattn.encoders.base import LEAST_ROWS, MOST_ROWS, split_batches
from fastattn.encoders.encoder import FIRST_WINDOW, Encoder
from fastattn.errors import CheckpointError, InputError, TokenizerError
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.ops import reference
from fastattn.spec.architecture import ModelSpec, PositionSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import LAYER_NORM, EncoderText
from fastattn.vectors.search import SIMILARITIES, similarity, similarity_pairwise
from fastattn.weights import read
from tests import GOLDENS, ROOT
from tests.children import run_child
from tests.encoders.classifiers import write_classifier, write_json
from tests.messages import refused
from tests.models.encoder_cases import CASES, make_tensors
from tests.scheduling.by_hand import ended

WORDS = "query : the a cat dog sat ran on under mat log and then some more words here now".split()


def _tokenizer():
    vocabulary = {token: i for i, token in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", None, [("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    return tokenizer.to_str().encode()


SPEC = ModelSpec("encoder", replace(CASES[0].spec, positions=PositionSpec("table", limit=64)))
TEXT = EncoderText(_tokenizer(), max_length=64, normalize=True, prompts={"query": "query : ", "empty": ""})
WIDTH = SPEC.encoder.width
TENSORS = make_tensors(SPEC, 0)


def _encoder(ops=reference, threads=None, precision="auto", **text):
    return Encoder.from_checkpoint(Checkpoint(SPEC, TENSORS, replace(TEXT, **text)), precision, threads, ops)


def _rows(text):
    """The model's rows of one text, its special tokens included."""
    ids = Tokenizer.from_str(_tokenizer().decode()).encode(text).ids
    checkpoint = Checkpoint(SPEC, TENSORS, TEXT)
    return build_model(checkpoint, reference).encode([np.array(ids, np.int32)])[0].astype(np.float64)


def _unit(x):
    return x / np.sqrt((x * x).sum(axis=-1, keepdims=True))


@pytest.fixture(scope="module")
def encoder():
    return _encoder()


@pytest.fixture(scope="module")
def compiled():
    return _encoder(operations, 2, "float32")


def test_a_str_gives_a_vector_a_list_a_matrix_none_an_empty_one(encoder):
    one, many = encoder.encode("the cat sat"), encoder.encode(["the cat sat", "a dog"])
    assert one.shape == (WIDTH,) and many.shape == (2, WIDTH) and encoder.dimension == WIDTH
    assert one.dtype == many.dtype == np.float32
    np.testing.assert_allclose(one, _unit(_rows("the cat sat").mean(axis=0)), atol=1e-6)
    np.testing.assert_allclose(many[1], _unit(_rows("a dog").mean(axis=0)), atol=1e-6)
    for nothing in ([], (), iter([])):
        assert encoder.encode(nothing).shape == (0, WIDTH)
    assert encoder.encode([], pooling=("cls", "max"), truncate_dim=7).shape == (0, 7)
    assert np.isfinite(encoder.encode(["", "   "])).all()


def _pooled(rows, first=0):
    """Each pooling of the rows from the first on, which keep their numbers."""
    rest, weights = rows[first:], np.arange(first + 1.0, len(rows) + 1)
    return {
        "cls": rest[0],
        "lasttoken": rest[-1],
        "max": rest.max(axis=0),
        "mean": rest.mean(axis=0),
        "mean_sqrt_len": rest.sum(axis=0) / np.sqrt(len(rest)),
        "weightedmean": weights @ rest / weights.sum(),
    }


def test_poolings(encoder):
    text, expected = "the cat sat on some mat", _pooled(_rows("the cat sat on some mat"))
    for mode, vector in expected.items():
        np.testing.assert_allclose(encoder.encode(text, pooling=mode, normalize_embeddings=False), vector, atol=1e-5)
    both = encoder.encode([text], pooling=["max", "cls"], normalize_embeddings=False)
    np.testing.assert_allclose(both[0], np.concatenate([expected["max"], expected["cls"]]), atol=1e-5)
    assert _encoder(pooling=("mean", "max", "cls")).dimension == 3 * WIDTH
    for mode, vector in _pooled(_rows("query : the cat"), 3).items():  # without [CLS] query :
        encoder = _encoder(include_prompt=False, normalize=False, pooling=(mode,))
        np.testing.assert_allclose(encoder.encode("the cat", prompt_name="query"), vector, atol=1e-5, err_msg=mode)


def test_pooling_of_an_empty_sentence_is_zero():
    rows = np.ones((3, 2), np.float32)
    pooled = operations.pool(rows, np.array([0, 0, 3]), ("mean", "max"), skip=3)
    np.testing.assert_array_equal(pooled, np.zeros((2, 4)))


def test_normalize_and_truncation_come_in_the_order_of_sentence_transformers(encoder):
    raw = _rows("the cat").mean(axis=0)
    np.testing.assert_allclose(encoder.encode("the cat", normalize_embeddings=False), raw, atol=1e-5)
    # The checkpoint's own normalization comes before the cut, the caller's after it.
    np.testing.assert_allclose(encoder.encode("the cat", truncate_dim=5), _unit(raw)[:5], atol=1e-6)
    shortened = encoder.encode("the cat", normalize_embeddings=True, truncate_dim=5)
    np.testing.assert_allclose(shortened, _unit(raw[:5]), atol=1e-6)
    np.testing.assert_allclose(_encoder(normalize=False).encode("the cat"), raw, atol=1e-5)
    assert encoder.encode("the cat", truncate_dim=10**9).shape == (WIDTH,)


def test_dense_layers_and_norms_follow_the_pooling():
    rng = np.random.default_rng(0)
    first, bias = rng.standard_normal((6, 2 * WIDTH)).astype(np.float32), rng.standard_normal(6).astype(np.float32)
    second, norms = rng.standard_normal((4, 6)).astype(np.float32), rng.standard_normal((2, 4)).astype(np.float32)
    layers = ((first, bias, "tanh"), (second, None, "none"), (*norms, LAYER_NORM))
    encoder = _encoder(pooling=("mean", "cls"), dense=layers, normalize=False)
    rows = _rows("a dog ran")
    x = second @ np.tanh(first @ np.concatenate([rows.mean(axis=0), rows[0]]) + bias)
    expected = (x - x.mean()) / np.sqrt(x.var() + 1e-5) * norms[0] + norms[1]
    np.testing.assert_allclose(encoder.encode("a dog ran"), expected, atol=1e-4)
    assert encoder.dimension == 4 and encoder.encode([]).shape == (0, 4)
    with refused(InputError, str(2 * WIDTH)):
        encoder.encode("a dog ran", pooling="mean")


def test_vectors_are_truncated_as_the_checkpoint_says_where_the_call_does_not():
    encoder, whole = _encoder(truncate_dim=5), _encoder()
    assert encoder.dimension == 5
    np.testing.assert_array_equal(encoder.encode("the cat"), whole.encode("the cat", truncate_dim=5))
    np.testing.assert_array_equal(encoder.encode("the cat", truncate_dim=7), whole.encode("the cat", truncate_dim=7))
    texts = ["the cat " * 100, "the"]
    found, expected = encoder.encode(texts, long="mean"), whole.encode(texts, long="mean", truncate_dim=5)
    np.testing.assert_array_equal(found, expected)


def test_long_input_is_cut_at_the_maximum_length():
    short = _encoder(max_length=6, normalize=False)
    assert short.max_length == 6
    np.testing.assert_allclose(short.encode("the cat sat on the mat"), short.encode("the cat sat on"), atol=1e-6)
    left = _encoder(max_length=6, normalize=False, truncation_side="left")
    np.testing.assert_allclose(left.encode("the cat sat on the mat"), short.encode("sat on the mat"), atol=1e-6)
    # Never more than the model has positions for.
    unbounded = _encoder(max_length=10**30)
    assert unbounded.max_length == 64
    assert np.isfinite(unbounded.encode("the cat " * 100)).all()


def _many_texts(count):
    rng = np.random.default_rng(3)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 30))) for _ in range(count)]


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 3000), max_size=60), threads=st.integers(1, 8))
def test_batches_hold_every_sentence_once_in_bounded_rows(lengths, threads):
    batches, most = split_batches(lengths, threads), MOST_ROWS
    if threads > 1 and sum(lengths) >= 2 * LEAST_ROWS * threads:  # enough for all, in even shares
        most = min(MOST_ROWS, max(LEAST_ROWS, sum(lengths) // (4 * threads)))
    assert sorted(b for batch in batches for b in batch) == list(range(len(lengths)))
    rows = [sum(lengths[b] for b in batch) for batch in batches]
    assert all(len(batch) == 1 or held <= most for batch, held in zip(batches, rows))
    assert all(held + lengths[after[0]] > most for held, after in zip(rows, batches[1:])), "full, but for the last"


def test_a_prompt_is_text_and_never_a_name_and_goes_before_one(encoder):
    assert encoder.prompts == {"query": "query : ", "empty": ""}
    plain = encoder.encode("the cat")
    np.testing.assert_array_equal(encoder.encode("the cat", prompt="query"), encoder.encode("querythe cat"))
    with pytest.warns(UserWarning, match="prompt_name 'query' is ignored") as caught:
        found = encoder.encode("the cat", prompt_name="query", prompt="")
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(found, plain)
    assert np.abs(encoder.encode("the cat", prompt_name="query") - plain).max() > 1e-3
    with refused(InputError, "query"):
        _encoder(prompts={}).encode("the cat", prompt_name="query")


def test_checkpoints_that_cannot_be_served():
    ones = [np.ones((2, width)) for width in (WIDTH, 5)]
    for text in (
        *({"pooling": ("median",)}, {"similarity": "maxsim"}),
        *({"dense": ((weight, None, activation),)} for weight, activation in zip(ones, ("softplus", "none"))),
    ):
        with refused(CheckpointError):
            _encoder(**text)
    added = b'{"added_tokens": [%s]}'
    for tokenizer in (b"[]", b"[" * 100_000, added % b'{"id": 1e999, "special": true}', added % b"3"):
        with pytest.raises(TokenizerError, match="tokenizer.json"):
            _encoder(tokenizer=tokenizer)
    with pytest.warns(UserWarning, match="precision 'float16' runs as 'float32'") as told:
        _encoder(precision="float16")
    assert [warning.filename for warning in told] == [__file__]


TASKS = [
    # prompts, the default one, and what is put before a text, a query, a document
    ({}, None, ("", "", "")),
    ({"query": "query : ", "document": "the "}, None, ("", "query : ", "the ")),
    ({"query": "query : ", "a": "a : "}, "a", ("a : ", "query : ", "")),
    ({"document": "the ", "query": "query : "}, "query", ("query : ", "query : ", "the ")),
    ({"passage": "the ", "corpus": "a "}, None, ("", "", "")),
    ({"passage": "the ", "document": ""}, "passage", ("the ", "", "")),
]


def test_queries_and_documents_have_prompts_of_their_own():
    for prompts, default, expected in TASKS:
        encoder = _encoder(prompts=prompts, default_prompt=default)
        plain, query, document = (encoder.encode(f"{before}cat", prompt="") for before in expected)
        np.testing.assert_array_equal(encoder.encode("cat"), plain)
        np.testing.assert_array_equal(encoder.encode_query("cat"), query)
        np.testing.assert_array_equal(encoder.encode_document(["cat"]), [document])
        np.testing.assert_array_equal(encoder.encode_query("cat", prompt="on "), encoder.encode("on cat", prompt=""))
        for name in prompts:
            named = encoder.encode_document("cat", prompt_name=name, truncate_dim=5)
            np.testing.assert_array_equal(named, encoder.encode("cat", prompt_name=name)[:5])


TEXTS = _many_texts(100)
TYPES = {"int8": np.int8, "uint8": np.uint8, "binary": np.int8, "ubinary": np.uint8}


def test_vectors_of_other_types(compiled):
    for output_dtype, options in product(TYPES, ({}, {"truncate_dim": 11, "prompt_name": "query"})):
        vectors = compiled.encode(TEXTS, **options)
        found = compiled.encode(TEXTS, output_dtype=output_dtype, **options)
        np.testing.assert_array_equal(found, quantize_vectors(vectors, output_dtype))
        assert found.dtype == TYPES[output_dtype]
        ranges = np.stack([vectors[:20].min(axis=0), vectors[:20].max(axis=0)])
        expected = quantize_vectors(vectors, output_dtype, ranges)
        options = {"output_dtype": output_dtype, "ranges": ranges, **options}
        for found in (
            compiled.encode(TEXTS, **options),
            compiled.submit(TEXTS, **options).result(),
            list(compiled.encode_iter(TEXTS, **options)),
        ):
            np.testing.assert_array_equal(found, expected)
        none = compiled.encode([], **options)
        assert none.shape == (0, expected.shape[1]) and none.dtype == expected.dtype


def test_ranges_that_no_vectors_tell(compiled):
    for output_dtype, task in (("int8", None), ("uint8", "query")):
        for call, texts in ((compiled.encode, "a"), (compiled.encode, ["a"]), (compiled.encode_iter, TEXTS)):
            with refused(InputError, output_dtype):
                call(texts, output_dtype=output_dtype, task=task)
        with pytest.warns(UserWarning, match=f"{output_dtype} by the ranges of 2 vectors") as told:
            compiled.encode(["a", "the cat"], output_dtype=output_dtype, task=task)
        assert [warning.filename for warning in told] == [__file__]


def _write_folder(folder):
    """A small model as sentence-transformers saves one."""
    modules = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    files = {
        "modules.json": [{"type": f"sentence_transformers.models.{kind}", "path": modules[kind]} for kind in modules],
        "sentence_bert_config.json": {"max_seq_length": 32},
        "1_Pooling/config.json": {"word_embedding_dimension": 36, "pooling_mode_mean_tokens": True},
        "config_sentence_transformers.json": {"prompts": TEXT.prompts, "similarity_fn_name": "dot"},
    }
    write_json(write_classifier(folder, architectures=["BertModel"]), files)


def test_a_folder_of_sentence_transformers(tmp_path):
    _write_folder(tmp_path)
    encoder, plain = Encoder(str(tmp_path)), Encoder.from_checkpoint(read(write_classifier(tmp_path / "plain")))
    assert (encoder.dimension, encoder.max_length, encoder.prompts) == (36, 32, TEXT.prompts)
    vectors = plain.encode(["w5 w7", "query : w8"], pooling="mean", normalize_embeddings=True)
    np.testing.assert_allclose(encoder.encode(["w5 w7", "query : w8"]), vectors, atol=1e-6)
    np.testing.assert_allclose(np.diag(encoder.similarity(2 * vectors, vectors)), 2, rtol=1e-5)


def test_minilm_as_sentence_transformers_computes_it(pulled):
    encoder = Encoder(pulled("minilm"))
    assert (encoder.dimension, encoder.max_length) == (384, 256)
    with np.load(GOLDENS / "minilm.npz") as goldens:
        texts = goldens["texts"].tolist()
        vectors = encoder.encode(texts)
        np.testing.assert_allclose(vectors, goldens["plain"], atol=2e-6)
        np.testing.assert_allclose(encoder.encode(texts[:3], prompt="query: "), goldens["prompted"], atol=2e-6)
        np.testing.assert_allclose(encoder.similarity(vectors, vectors), goldens["similarity"], atol=5e-6)
        excluded = goldens["prompt_not_pooled"]
    checkpoint = read(pulled("minilm"))
    assert isinstance(checkpoint.text, EncoderText)
    checkpoint.text = replace(checkpoint.text, include_prompt=False)
    encoder = Encoder.from_checkpoint(checkpoint)
    np.testing.assert_allclose(encoder.encode(texts[:3], prompt="query: "), excluded, atol=2e-6)


def test_minilm_in_fewer_bits_gives_nearly_its_vectors(pulled):
    lines = (ROOT / "tests/text/sentences.txt").read_text(encoding="utf-8").splitlines()
    texts = [line.removeprefix("en\t") for line in lines if line.startswith("en\t")]
    exact = Encoder(pulled("minilm"), "float32").encode(texts)
    others = exact @ exact.T
    np.fill_diagonal(others, -1)
    for precision, least in (("bfloat16", 0.9995), ("int8", 0.99)):
        vectors = Encoder(pulled("minilm"), precision).encode(texts)
        cosines = (vectors * exact).sum(axis=1)
        assert least <= cosines.min() < 1 - 1e-6, "as near as that, yet not the same"
        assert (cosines > others.max(axis=1)).all(), "nearer than the sentences are to each other"
        single = Encoder(pulled("minilm"), precision, threads=1)
        np.testing.assert_array_equal(single.encode(texts[::-3]), vectors[::-3])


def test_to_submit_reads_no_text(encoder, monkeypatch):
    """That is done by the thread that computes."""
    threads, encode, here = [], encoder._tokenizer.encode, threading.get_ident
    monkeypatch.setattr(encoder._tokenizer, "encode", lambda *given: threads.append(here()) or encode(*given))
    assert len(encoder.submit(["the cat"] * 40).result(60)) == 40 and threads and here() not in threads


STRUCK = ("encoder.py", "base.py", "vector_head.py", "scheduler.py", "state.py")


class Interrupt(BaseException):
    pass


def _struck(call, at, strike):
    """What the call returns with ``strike`` before the at-th line of these files, and whether there was one."""
    left, before = at, sys.gettrace()

    def trace(frame, event, _):
        nonlocal left
        if not frame.f_code.co_filename.endswith(STRUCK):
            return None
        left -= event == "line"
        if event == "line" and left == 0:
            strike()
        return trace

    sys.settrace(trace)
    try:
        return call(), left <= 0
    finally:
        sys.settrace(before)


def test_an_interrupt_or_a_signal_handler_at_any_line_of_one_text_keeps_nobody_out(encoder):
    """Other threads' calls neither, which wait for no slot that it left taken; a handler may encode as well."""
    cat, dog = partial(encoder.encode, "the cat"), partial(encoder.encode, "a dog")
    expected, inner, found = cat(), dog(), []

    def interrupt():
        raise Interrupt

    for strike in (interrupt, lambda: found.append(dog())):
        at, reached = 0, True
        while reached:
            at += 1
            result = ended(partial(_struck, cat, at, strike))
            vector, reached = (expected, True) if isinstance(result, Interrupt) else result
            np.testing.assert_array_equal([vector, ended(cat)], [expected] * 2)
        assert at > 51
    assert len(found) == at - 1
    np.testing.assert_array_equal(found, [inner] * len(found))


OPTIONS = {"prompt_name": "query", "normalize_embeddings": False, "truncate_dim": 5, "pooling": ("cls", "max")}


def test_one_after_the_other_they_are_the_same_vectors():
    compiled, texts = _encoder(operations), _many_texts(FIRST_WINDOW + 5)
    for number, options in product((0, 1, FIRST_WINDOW, len(texts)), ({}, OPTIONS)):
        vectors = list(compiled.encode_iter(iter(texts[:number]), **options))
        assert len(vectors) == number
        for vector, expected in zip(vectors, compiled.encode(texts[:number], **options), strict=True):
            np.testing.assert_array_equal(vector, expected)
            assert vector.base is None, "a vector that is kept would keep its window"


UNUSED = """
import sys
from fastattn import Encoder
from fastattn.errors import CheckpointError
for path in sys.argv[1:]:
    try: Encoder(path)
    except CheckpointError as error: print(error)
print(*{"numba", "llvmlite", "tokenizers", "fastattn.ops.cpu"} & set(sys.modules))
"""


def test_a_wrong_path_is_told_before_anything_heavy_is_imported(tmp_path):
    nowhere, no_checkpoint, imported = run_child(UNUSED, tmp_path / "nowhere", tmp_path).splitlines()
    assert "neither an existing path nor" in nowhere and "not a checkpoint" in no_checkpoint and imported == ""


def test_reads_ahead_by_so_much_and_no_more(encoder, monkeypatch):
    monkeypatch.setattr("fastattn.encoders.encoder.LAST_WINDOW", 2 * FIRST_WINDOW)
    monkeypatch.setattr("fastattn.encoders.encoder.WINDOW_CHARACTERS", 1 << 10)
    for text, first, later in (
        ("", FIRST_WINDOW, 2 * FIRST_WINDOW),
        ("the cat", FIRST_WINDOW, 2 * FIRST_WINDOW),
        ("mat " * 64, 4, 4),  # which four of make WINDOW_CHARACTERS
    ):
        read: list[str] = []
        endless = (read.append(text) or text for _ in count())
        vectors = encoder.encode_iter(endless)
        ahead = [len(read) - given_out for given_out, _ in zip(range(5 * first), vectors)]
        assert ahead[0] == max(ahead[:first]) == first and max(ahead) == later


def test_progress_counts_texts_on_a_terminal(monkeypatch):
    for name in ("_FIRST_DELAY", "_INTERVAL"):
        monkeypatch.setattr(f"fastattn.system.progress.{name}", 0)
    encoder, texts = _encoder(operations), _many_texts(400)
    for terminal, wish in product((True, False), (None, False, True)):
        monkeypatch.setattr("sys.stderr", shown := io.StringIO())
        shown.isatty = lambda terminal=terminal: terminal
        encoder.encode(texts, show_progress_bar=wish)
        lines = shown.getvalue().split("\r")
        assert ("400 of 400 texts" in lines and lines[-1] == "" == lines[-2].strip()) == (terminal and wish is True)


def test_similarity_is_the_checkpoints():
    a, b = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[3.0, 4.0]])
    for function in SIMILARITIES:
        encoder = _encoder(similarity=function)
        np.testing.assert_array_equal(encoder.similarity(a, b), similarity(a, b, function))
        assert encoder.similarity(a, np.zeros((0, 2))).shape == (2, 0)
        for wrong in ("x", [[1.0], [2.0, 3.0]], np.ones(3) * 1j, None, np.zeros((1, 3))):
            with refused(InputError):
                encoder.similarity(a, wrong)
        pairs = encoder.similarity_pairwise(a, np.concatenate([b, b]))
        np.testing.assert_array_equal(pairs, similarity_pairwise(a, np.concatenate([b, b]), function))


LIMIT = 8  # [CLS], six tokens, [SEP]
SIXTEEN = " ".join(WORDS[2:18])


@pytest.fixture(scope="module")
def short():
    return _encoder(max_length=LIMIT)


@pytest.fixture(scope="module")
def short_compiled():
    return _encoder(operations, 2, "int8", max_length=LIMIT)


def _raw(text, **options):
    """The vector of a text that fits, before any normalization, in float64."""
    return _encoder(max_length=64, **options).encode(text, normalize_embeddings=False).astype(np.float64)


def test_the_mean_of_windows_weighted_by_their_tokens(short):
    words = SIXTEEN.split()
    parts = [" ".join(words[start : start + 6]) for start in (0, 6, 12)]
    mean = (6 * _raw(parts[0]) + 6 * _raw(parts[1]) + 4 * _raw(parts[2])) / 16
    for options, expected in (
        ({}, _unit(mean)),
        ({"normalize_embeddings": False}, mean),
        ({"truncate_dim": 5}, _unit(mean)[:5]),
        ({"truncate_dim": 5, "normalize_embeddings": True}, _unit(mean[:5])),
    ):
        np.testing.assert_allclose(short.encode(SIXTEEN, long="mean", **options), expected, atol=1e-6)
    weight = np.random.default_rng(0).standard_normal((5, 2 * WIDTH)).astype(np.float32)
    how = {"pooling": ("max", "cls"), "dense": ((weight, None, "tanh"),), "normalize": False}
    mean = (6 * _raw(parts[0], **how) + 2 * _raw(" ".join(words[6:8]), **how)) / 8
    found = _encoder(max_length=LIMIT, **how).encode(" ".join(words[:8]), long="mean")
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_every_window_begins_with_the_prompt():
    words = SIXTEEN.split()[:10]
    parts = [" ".join(words[start : start + 4]) for start in (0, 4, 8)]  # "query :" takes two places
    for included in (True, False):
        encoder = _encoder(max_length=LIMIT, include_prompt=included)
        wide = _encoder(max_length=64, include_prompt=included)
        raws = [wide.encode(part, prompt_name="query", normalize_embeddings=False).astype(np.float64) for part in parts]
        mean = (4 * raws[0] + 4 * raws[1] + 2 * raws[2]) / 10
        found = encoder.encode_query([" ".join(words), "the cat"], long="mean")
        np.testing.assert_allclose(found[0], _unit(mean), atol=1e-6)
        np.testing.assert_allclose(found[1], encoder.encode_query("the cat"), atol=1e-6)


def test_a_prompt_whose_end_the_text_begins_in_another_token(short):
    """ "on" and "under" are tokens, "onunder" is an unknown one: the windows begin with what both begin with, "the"."""
    words = " ".join(WORDS[2:12])
    found = short.encode(f"under {words}", prompt="the on", long="mean", normalize_embeddings=False)
    ids = f"onunder {words}".split()
    parts = [" ".join(["the", *ids[start : start + 5]]) for start in (0, 5, 10)]
    mean = (5 * _raw(parts[0]) + 5 * _raw(parts[1]) + _raw(parts[2])) / 11
    np.testing.assert_allclose(found, mean, atol=1e-5)


def test_a_prompt_that_leaves_no_room(short):
    for length, long in ((6, "mean"), (7, "mean"), (30, "mean"), (6, "error")):
        with refused(InputError):
            short.encode("a cat", prompt="the " * length, long=long)
    assert short.encode("a cat", prompt="the " * 5, long="mean").shape == (WIDTH,)


def test_texts_that_fit_keep_their_bits(short_compiled):
    texts = [*_many_texts(60), " ".join(WORDS[:6]), " ".join(WORDS[:7]), ""]
    fits = short_compiled.count_tokens(texts) <= LIMIT
    assert fits.any() and not fits.all() and fits[60] and not fits[61]
    cut, mean = short_compiled.encode(texts), short_compiled.encode(texts, long="mean")
    np.testing.assert_array_equal(mean[fits], cut[fits])
    assert (np.abs(mean - cut).max(axis=1) > 1e-3)[~fits].all()
    np.testing.assert_array_equal(list(short_compiled.encode_iter(texts, long="mean")), mean)
    short = [text for text, fit in zip(texts, fits, strict=True) if fit]
    for long in ("mean", "error"):
        np.testing.assert_array_equal(short_compiled.encode(short, long=long), short_compiled.encode(short))


def test_counts_are_of_whole_texts_with_prompts_and_special_tokens(short):
    texts = ["", "the cat", SIXTEEN, "the " * 1000]
    counts = short.count_tokens(texts)
    assert counts.dtype == np.int64
    np.testing.assert_array_equal(counts, [2, 4, 18, 1002])
    for how in ({"task": "query"}, {"prompt_name": "query"}, {"prompt": "query : "}):
        np.testing.assert_array_equal(short.count_tokens(iter(texts), **how), counts + 2)
    np.testing.assert_array_equal(_encoder(default_prompt="query").count_tokens(texts), counts + 2)
    assert short.count_tokens("the cat").shape == () and short.count_tokens("the cat") == 4
    assert short.count_tokens([]).shape == (0,)


def test_the_vectors_before_a_refused_text_come_first(short_compiled):
    for number in (0, 3, FIRST_WINDOW - 1, FIRST_WINDOW, FIRST_WINDOW + 7):
        texts = [" ".join(WORDS[n : n + n % 6]) for n in range(number + 3)]
        given = [*texts[:number], SIXTEEN, *texts[number:], SIXTEEN]
        vectors = short_compiled.encode_iter(given, long="error")
        found = [next(vectors) for _ in range(number)]
        np.testing.assert_array_equal(np.reshape(found, (number, WIDTH)), short_compiled.encode(texts)[:number])
        submitted = short_compiled.submit(given, long="error")
        for call in (partial(next, vectors), partial(short_compiled.encode, given, long="error"), submitted.result):
            with refused(InputError, f"text number {number} has 18 tokens"):
                call()
        assert list(vectors) == []
