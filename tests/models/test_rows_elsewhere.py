"""Models on operations that keep their rows to themselves: whatever else computed on one would fail here."""

import numpy as np
import pytest

from fastattn import Translator
from fastattn.errors import InputError
from fastattn.models.encoder import CHUNK_ROWS
from fastattn.ops import cpu as operations
from fastattn.spec.text_spec import POOLINGS
from tests.encoders.test_encoder import WIDTH
from tests.encoders.test_encoder import _encoder as build
from tests.models.tiny_models import VARIETIES, random_checkpoint


class Rows:
    """What an operation gives, out of reach: of an implementation that keeps its rows elsewhere."""

    __array_ufunc__ = None

    def __init__(self, values):
        self.values = values
        self.shape, self.dtype = values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return self.values

    def __array_function__(self, function, *_):
        raise AssertionError(f"{function.__name__} of rows, outside of the operations")


class Elsewhere:
    """The kernels, whose rows are out of reach outside of it; what the host decides on is not."""

    ON_THE_HOST = (
        "pack_linear", "pack_rows", "select_outputs", "use_threads", "current_threads", "thread_limit", "recorder",
        "log_probs", "project_all", "project_top_k", "gate_rows",
    )  # fmt: skip

    def __getattr__(self, name):
        function = getattr(operations, name)

        def call(*arguments, **options):
            result = function(*map(_inside, arguments), **{key: _inside(value) for key, value in options.items()})
            return result if name in self.ON_THE_HOST or result is None else Rows(result)

        return call


def _inside(value):
    if isinstance(value, list):
        return [_inside(one) for one in value]
    if isinstance(value, tuple):
        return type(value)(*map(_inside, value)) if hasattr(value, "_fields") else tuple(map(_inside, value))
    return value.values if isinstance(value, Rows) else value


SEARCHES = (
    {},
    {"beam_size": 3, "coverage_penalty": 0.1, "return_attention": True, "num_hypotheses": 2},
    {"beam_size": 2, "target_prefix": "▁w3 ▁w5", "prefix_bias_beta": 0.4},
    {"return_alternatives": True, "num_hypotheses": 3, "target_prefix": "▁w3"},
    {"sampling_topk": 0, "num_hypotheses": 2, "seed": 3, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
)


@pytest.mark.parametrize("variety", VARIETIES)
def test_translation_computes_on_rows_by_operations_alone(variety):
    checkpoint = random_checkpoint(**VARIETIES[variety])
    expected, elsewhere = (Translator.from_checkpoint(checkpoint, ops=ops) for ops in (operations, Elsewhere()))
    lines = ["▁w1 ▁w2 ▁w9 ▁w4", "▁w7", "▁w8 ▁w2"]
    for options in SEARCHES:
        prefix = {"target_prefix": [options["target_prefix"]] * 3} if "target_prefix" in options else {}
        if variety.endswith("alone") and "return_attention" in options:
            with pytest.raises(InputError, match="need a model with attention to its source"):
                expected.translate(lines, details=True, **options)
            continue
        options = options | prefix | {"max_decoding_length": 6}
        one, other = (t.translate(lines, details=True, **options) for t in (expected, elsewhere))
        assert repr(one) == repr(other)
    one, other = (t.score(lines, lines[::-1]) for t in (expected, elsewhere))
    assert repr(one) == repr(other)


@pytest.mark.parametrize("skip", [False, True])
def test_encoding_computes_on_rows_by_operations_alone(skip):
    dense = ((np.full((5, len(POOLINGS) * WIDTH), 0.1, np.float32), None, "tanh"),)
    text = {"pooling": POOLINGS, "dense": dense, "include_prompt": not skip}
    one, other = (build(ops, 1, "int8", **text) for ops in (operations, Elsewhere()))
    texts = ["the cat sat", "", "a dog ran on and on"] * 40  # more than go through the layers together
    assert sum(len(text.split()) + 2 for text in texts) > CHUNK_ROWS
    np.testing.assert_array_equal(*(encoder.encode(texts, prompt_name="query") for encoder in (one, other)))
