"""Multi-head attention against the formula in float64, and against what torch computed of the same weights."""

from pathlib import Path

import numpy as np
import pytest

import fastattn
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.spec.rounding import as_floats, bfloat16_bits
from tests import ROOT
from tests.array_attention.formula import attend, check_near
from tests.kernels.cases import normal
from tests.messages import refused
from tests.weights.containers.safetensors_writer import safetensors_bytes

GOLDEN = ROOT / "tests/goldens/multi_head.npz"


def make_weights(H=4, G=2, K=6, V=10, D=20, M=20, out=14, biases=True):
    shapes = {"query": (H * K, D), "key": (G * K, M), "value": (G * V, M), "output": (out, H * V)}
    arrays = {name: normal(n, *shape) * np.float32(shape[1] ** -0.5) for n, (name, shape) in enumerate(shapes.items())}
    if biases:
        arrays |= {f"{name}_bias": normal(n + 9, shape[0]) for n, (name, shape) in enumerate(shapes.items())}
    return fastattn.ProjectionWeights(**arrays)


def formula(weights, heads, x, memory=None, dtype=np.float64, **options):
    """(y, weights_BHTS) of projections and attention in this dtype."""

    def project(rows, name, width):
        bias = getattr(weights, f"{name}_bias")
        y = rows.astype(dtype) @ getattr(weights, name).T.astype(dtype) + (0 if bias is None else bias.astype(dtype))
        return y.reshape(*y.shape[:2], y.shape[2] // width, width) if width else y

    memory = x if memory is None else memory
    K = len(weights.query) // heads
    V = len(weights.value) // (len(weights.key) // K)
    parts = project(x, "query", K), project(memory, "key", K), project(memory, "value", V)
    context, probabilities, _ = attend(*parts, dtype=dtype, **options)
    return project(context.reshape(*x.shape[:2], heads * V), "output", 0), probabilities


def agrees(got, weights, heads, *rows, **options):
    assert len(got) == 2 and all(one.dtype == np.float32 for one in got)
    check_near(got, lambda dtype: formula(weights, heads, *rows, dtype=dtype, **options))


def test_is_the_formula():
    for H, G in ((4, 2), (3, 1), (1, 1), (5, 5)):
        for biases in (False, True):
            for B, T, S in ((2, 9, 9), (1, 1, 1), (3, 1, 130), (2, 70, 3), (0, 4, 4), (2, 0, 5), (2, 3, 0)):
                weights = make_weights(H, G, M=17, biases=biases)
                x, memory = normal(1, B, 2 * T, 20)[:, ::-2], np.asfortranarray(normal(2, B, S, 17))
                x.flags.writeable = memory.flags.writeable = False
                mha = fastattn.MultiHeadAttention(weights, H)
                *got, logs = mha(x, memory, return_weights=True, return_logsumexp=True)
                agrees(got, weights, H, x, memory)
                np.testing.assert_array_equal(mha(x, memory, return_logsumexp=True)[1], logs)
                again = fastattn.multi_head_attention(x, memory, weights=weights, heads=H, return_weights=True)
                for one, other in zip(again, got, strict=True):
                    np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("with_memory", [False, True])
def test_projections_are_not_copied(monkeypatch, with_memory):
    seen, attend_arrays = [], operations.strided_attention
    monkeypatch.setattr(operations, "strided_attention", lambda *given: seen.append(given[0]) or attend_arrays(*given))
    x = normal(1, 2, 9, 20)
    fastattn.MultiHeadAttention(make_weights(), 4)(x, x.copy() if with_memory else None)
    (arrays,) = seen
    bases = [part.base for part in arrays[:3]]
    assert bases[1] is bases[2] and (bases[0] is bases[1]) != with_memory
    widths = [24, 12 + 20] if with_memory else [24 + 12 + 20] * 2
    assert [part.strides[1] for part in arrays[:2]] == [4 * width for width in widths]


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
def test_precisions(precision):
    weights, x = make_weights(), normal(1, 2, 9, 20)
    exact, _ = formula(weights, 4, x)
    y = fastattn.MultiHeadAttention(weights, 4, precision)(x)
    np.testing.assert_array_equal(fastattn.multi_head_attention(x, weights=weights, heads=4, precision=precision), y)
    error = np.abs(y - exact).max()
    assert 1e-5 < error < 0.05 * np.abs(exact).max()
    if precision == "bfloat16":  # little is left when the weights and rows are bfloat16 already
        rounded = weights._replace(**{n: as_floats(bfloat16_bits(w)) for n, w in weights._asdict().items()})
        near, _ = formula(rounded, 4, as_floats(bfloat16_bits(x)))
        assert np.abs(y - near).max() < 2 * error


def golden(case):
    with np.load(GOLDEN) as file:
        return {name.removeprefix(f"{case}/"): file[name] for name in file.files if name.startswith(f"{case}/")}


def state_of(arrays, prefix=""):
    return {prefix + n.removeprefix("state."): a for n, a in arrays.items() if n.startswith("state.")}


def test_as_torch():
    for case in ("itself", "no_bias", "memory"):
        arrays = golden(case)
        mha = fastattn.MultiHeadAttention.from_torch(state_of(arrays), 3)
        mask = ~arrays["padding"][:, None, None]
        y, weights = mha(arrays["x"], arrays.get("memory"), mask=mask, return_weights=True)
        np.testing.assert_allclose(y, arrays["out"], atol=2e-6)
        np.testing.assert_allclose(weights, arrays["weights"], atol=1e-6)
        lengths = (~arrays["padding"]).sum(axis=1)
        np.testing.assert_array_equal(mha(arrays["x"], arrays.get("memory"), lengths=lengths), y)


def test_from_files(tmp_path):
    arrays, file = golden("itself"), tmp_path / "model.safetensors"
    for prefix, others in (("", {}), ("layers.0.attention.", {"layers.1.norm": np.ones(3, np.float32)})):
        state = state_of(arrays, prefix)
        file.write_bytes(safetensors_bytes({**state, **others}))
        expected = fastattn.MultiHeadAttention.from_torch(state, 3, prefix)(arrays["x"])
        for path in (file, str(file)):
            mha = fastattn.MultiHeadAttention.from_torch(path, 3, prefix)
            np.testing.assert_array_equal(mha(arrays["x"]), expected)


def test_from_a_file_of_torch():
    path = ROOT / "tests/goldens/pytorch_zip.bin"
    for prefix in ("base", ""):
        with refused(InputError, "state: unknown tensors"):
            fastattn.MultiHeadAttention.from_torch(path, 1, prefix)
    arrays = golden("memory")
    mha = fastattn.MultiHeadAttention.from_torch(ROOT / "tests/goldens/multi_head.bin", 3)
    mask = ~arrays["padding"][:, None, None]
    np.testing.assert_allclose(mha(arrays["x"], arrays["memory"], mask=mask), arrays["out"], atol=2e-6)
    with refused(CheckpointError, "no such file"):
        fastattn.MultiHeadAttention.from_torch(Path("nowhere.pt"), 1)


class Tensor:
    """As much of a tensor of torch's as is asked of one; bfloat16 is nothing that NumPy can read."""

    def __init__(self, array, dtype):
        self.array, self.dtype = array, f"torch.{dtype}"

    def detach(self):
        return self

    cpu = detach

    def float(self):
        return Tensor(self.array.astype(np.float32), "float32")

    def __array__(self, dtype=None, copy=None):
        if self.dtype == "torch.bfloat16":
            raise TypeError("Got unsupported ScalarType BFloat16")
        return self.array


OTHER_TYPES = {
    "float64": lambda array: array.astype(np.float64),
    "float16": lambda array: array.astype(np.float16),
    "bfloat16": lambda array: Tensor(as_floats(bfloat16_bits(array)), "bfloat16"),
}


@pytest.mark.parametrize("name", OTHER_TYPES)
def test_states_of_other_types(name):
    arrays = golden("itself")
    state = {key: OTHER_TYPES[name](array) for key, array in state_of(arrays).items()}
    wide = {key: getattr(array, "array", array).astype(np.float32) for key, array in state.items()}
    results = [fastattn.MultiHeadAttention.from_torch(one, 3)(arrays["x"]) for one in (state, wide)]
    np.testing.assert_array_equal(*results)


def changed(**arrays):
    return {**state_of(golden("itself")), **arrays}


# Keys and values of different widths.
WIDTHS = {f"{part}_proj_weight": normal(1, 12, width) for part, width in (("q", 12), ("k", 8), ("v", 7))}
WIDTHS["out_proj.weight"] = normal(2, 12, 12)
STATES = [
    ("mapping", 3),
    ("in_proj_weight", {}),
    ("bias_k", changed(bias_k=np.zeros((1, 1, 12)))),
    ("by 1", {1: 2}),
    ("extra", changed(extra=1)),
    ("q_proj_weight", changed(q_proj_weight=np.zeros((12, 12)))),
    ("in_proj_weight", changed(in_proj_weight=np.zeros((35, 12)))),
    ("query_bias", changed(in_proj_bias=np.zeros(33))),
    ("in_proj_bias", changed(in_proj_bias=np.zeros(36, int))),
    ("in_proj_weight", changed(), {"prefix": "x."}),
    ("prefix", changed(), {"prefix": None}),
    *(("heads", changed(), {"heads": heads}) for heads in (5, 0, 2.0)),
    ("precision", changed(), {"precision": "intgemm"}),
    ("query", changed(in_proj_weight=np.full((36, 12), np.nan)), {"precision": "int8"}),
    ("weights.value", WIDTHS),
]


@pytest.mark.parametrize("row", STATES, ids=lambda row: row[0])
def test_errors_of_states(row):
    named, state, *options = row
    with refused(InputError, named):
        fastattn.MultiHeadAttention.from_torch(state, **{"heads": 3, **(options[0] if options else {})})


WEIGHTS = [
    ("query", [[1.0]]),
    *(("key", array) for array in (np.zeros((12, 20)), normal(0, 12), normal(0, 18, 20), normal(0, 13, 20))),
    ("value", normal(0, 21, 20)),
    *(("output", output) for output in (normal(0, 14, 39), None)),
    ("output_bias", normal(0, 13)),
]


@pytest.mark.parametrize("name, array", WEIGHTS, ids=[row[0] for row in WEIGHTS])
def test_errors_of_weights(name, array):
    biases = dict.fromkeys(("key_bias", "value_bias", "output_bias"))
    with refused(InputError, f"weights.{name}"):
        fastattn.MultiHeadAttention(make_weights()._replace(**{**biases, name: array}), 4)


ROWS, MEMORY = normal(0, 2, 9, 20), normal(0, 2, 9, 17)


def test_errors_of_calls():
    mha = fastattn.MultiHeadAttention(make_weights(M=17), 4)
    for x in ([1.0], np.zeros((2, 9, 20)), normal(0, 9, 20), normal(0, 2, 9, 19)):
        with refused(InputError, "x"):
            mha(x)
    for memory in (ROWS, normal(0, 3, 9, 17)):
        with refused(InputError, "memory"):
            mha(ROWS, memory)
    for name, value in (("window", 3), ("threads", 0)):
        with refused(InputError, name):
            mha(ROWS, MEMORY, **{name: value})
    for name in ("layout", "out", "dropout_p"):
        with refused(TypeError, f"unexpected keyword argument '{name}'"):
            mha(ROWS, **{name: None})
    with refused(InputError, "ProjectionWeights"):
        fastattn.MultiHeadAttention({}, 4)
