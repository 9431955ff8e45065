"""Multi-head attention against the formula in float64, and against what torch computed of the same weights."""

from pathlib import Path

import numpy as np
import pytest

import fastattn
from fastattn.errors import CheckpointError, InputError
from fastattn.ops import cpu as operations
from fastattn.spec.rounding import as_floats, bfloat16_bits
from fastattn.weights.containers import safetensors
from tests import ROOT
from tests.array_attention.formula import attend, check_near
from tests.kernels.cases import normal

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
                x, memory = normal(1, B, T, 20), normal(2, B, S, 17)
                got = fastattn.multi_head_attention(x, memory, weights=weights, heads=H, return_weights=True)
                agrees(got, weights, H, x, memory)


def test_weights_and_logsumexp_in_this_order():
    mha, x = fastattn.MultiHeadAttention(make_weights(), 4), normal(1, 2, 9, 20)
    y, weights, logs = mha(x, return_weights=True, return_logsumexp=True)
    agrees((y, weights), make_weights(), 4, x)
    np.testing.assert_array_equal(fastattn.multi_head_attention(x, weights=make_weights(), heads=4), y)
    np.testing.assert_array_equal(mha(x, return_logsumexp=True)[1], logs)
    np.testing.assert_array_equal(mha(x, return_weights=True)[1], weights)
    assert y.shape == (2, 9, 14) and weights.shape == (2, 4, 9, 9) and logs.shape == (2, 4, 9)


@pytest.mark.parametrize("with_memory", [False, True])
def test_projections_are_not_copied(monkeypatch, with_memory):
    """Attention reads columns of the projections' rows where they are."""
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
    error = np.abs(y - exact).max()
    assert 1e-5 < error < 0.05 * np.abs(exact).max()
    if precision == "bfloat16":  # little is left when the weights and rows are bfloat16 already
        rounded = weights._replace(**{n: as_floats(bfloat16_bits(w)) for n, w in weights._asdict().items()})
        near, _ = formula(rounded, 4, as_floats(bfloat16_bits(x)))
        assert np.abs(y - near).max() < 2 * error


def test_bits_depend_on_no_other_sentence_and_no_thread():
    mha, x = fastattn.MultiHeadAttention(make_weights(H=8, G=8, K=64, V=64, D=300, M=300), 8), normal(1, 3, 70, 300)
    y = mha(x, threads=1)
    np.testing.assert_array_equal(mha(x, threads=2), y)
    for b in range(3):
        np.testing.assert_array_equal(mha(x[b : b + 1]), y[b : b + 1])


def test_any_strides_and_read_only_arrays():
    mha, x, memory = fastattn.MultiHeadAttention(make_weights(), 4), normal(1, 4, 18, 20), normal(2, 4, 6, 20)
    expected = mha(x[::2, ::-2].copy(), memory[::2].copy())
    x.flags.writeable = memory.flags.writeable = False
    np.testing.assert_array_equal(mha(x[::2, ::-2], memory[::2]), expected)
    np.testing.assert_array_equal(mha(np.asfortranarray(x[::2, ::-2]), memory[::2]), expected)


def test_nan_stays_in_its_sentence():
    mha, x = fastattn.MultiHeadAttention(make_weights(), 4), normal(1, 2, 9, 20)
    expected = mha(x, causal=True)
    x[1, 5, 3] = np.nan
    y = mha(x, causal=True)
    np.testing.assert_array_equal(y[0], expected[0])
    assert np.isnan(y[1, 5:]).all()


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
    for prefix in ("", "layers.0.attention."):
        arrays = golden("itself")
        state = state_of(arrays, prefix)
        others = {"layers.1.norm": np.ones(3, np.float32)} if prefix else {}
        new = {
            name: safetensors.NewTensor("F32", array.shape, lambda array=array: array)
            for name, array in {**state, **others}.items()
        }
        with (tmp_path / "model.safetensors").open("wb") as stream:
            safetensors.write_tensors(stream, new)
        expected = fastattn.MultiHeadAttention.from_torch(state, 3, prefix)(arrays["x"])
        for path in (tmp_path / "model.safetensors", str(tmp_path / "model.safetensors")):
            mha = fastattn.MultiHeadAttention.from_torch(path, 3, prefix)
            np.testing.assert_array_equal(mha(arrays["x"]), expected)


def test_from_a_file_of_torch():
    path = ROOT / "tests/goldens/pytorch_zip.bin"
    with pytest.raises(InputError, match="state: unknown tensors base; the prefix"):
        fastattn.MultiHeadAttention.from_torch(path, 1, "base")
    arrays = golden("memory")
    mha = fastattn.MultiHeadAttention.from_torch(ROOT / "tests/goldens/multi_head.bin", 3)
    mask = ~arrays["padding"][:, None, None]
    np.testing.assert_allclose(mha(arrays["x"], arrays["memory"], mask=mask), arrays["out"], atol=2e-6)
    with pytest.raises(InputError, match="state: unknown tensors again, base, bfloat16"):
        fastattn.MultiHeadAttention.from_torch(path, 1)
    with pytest.raises(CheckpointError, match="no such file"):
        fastattn.MultiHeadAttention.from_torch(Path("nowhere.pt"), 1)


def test_states_of_other_types():
    for dtype in (np.float64, np.float16):
        state = {name: array.astype(dtype) for name, array in state_of(golden("itself")).items()}
        wide = {name: array.astype(np.float32) for name, array in state.items()}
        x = golden("itself")["x"]
        results = [fastattn.MultiHeadAttention.from_torch(one, 3)(x) for one in (state, wide)]
        np.testing.assert_array_equal(*results)


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


def test_states_of_bfloat16_tensors():
    state = {name: as_floats(bfloat16_bits(array)) for name, array in state_of(golden("itself")).items()}
    tensors = {name: Tensor(array, "bfloat16") for name, array in state.items()}
    x = golden("itself")["x"]
    results = [fastattn.MultiHeadAttention.from_torch(one, 3)(x) for one in (state, tensors)]
    np.testing.assert_array_equal(*results)


def changed(**arrays):
    return {**state_of(golden("itself")), **arrays}


STATES = [
    (3, {}, "state: expected a mapping or a path, got int"),
    ({}, {}, "state: expected in_proj_weight, or .* and out_proj.weight, got none of them"),
    (changed(), {"prefix": "x."}, "state: expected in_proj_weight, .* got none of them"),
    (changed(bias_k=np.zeros((1, 1, 12))), {}, "state: bias_k and bias_v, of add_bias_kv=True, are not supported"),
    ({1: 2}, {}, "state: expected tensors by name, got one by 1"),
    ({("a",): 2}, {"prefix": "b"}, "state: expected tensors by name, got one by "),
    (changed(extra=1), {}, "state: unknown tensors extra; the prefix should be the attention's own"),
    (changed(q_proj_weight=np.zeros((12, 12))), {}, "state: expected in_proj_weight, or q_proj_weight, .* got in_"),
    (changed(in_proj_weight=np.zeros((35, 12))), {}, r"expected in_proj_weight of the .* got shape \(35, 12\)"),
    (changed(in_proj_weight=np.zeros(36)), {}, r"expected in_proj_weight of the rows .* got shape \(36,\)"),
    (changed(in_proj_bias=np.zeros(33)), {}, r"weights.query_bias: expected shape \(12,\), got \(11,\)"),
    (changed(in_proj_bias=["a", "b"]), {}, "state: expected in_proj_bias of float32, .* got <U1"),
    (changed(in_proj_bias=np.zeros(36, int)), {}, "state: expected in_proj_bias of float32, .* got int64"),
    (changed(), {"heads": 5}, "heads: expected a number that divides the 12 columns of queries, got 5"),
    (changed(), {"prefix": None}, "prefix: expected the beginning of names, got NoneType"),
    (changed(), {"heads": 0}, "heads must be at least 1, got 0"),
    (changed(), {"heads": 2.0}, "heads must be a whole number, got 2.0"),
    (changed(), {"precision": "intgemm"}, "precision: expected float32, bfloat16, int8, got 'intgemm'"),
    (changed(in_proj_weight=np.full((36, 12), np.nan)), {"precision": "int8"}, "query: expected finite numbers"),
]


def test_errors_of_states():
    for state, options, message in STATES:
        with pytest.raises(InputError, match=message) as raised:
            fastattn.MultiHeadAttention.from_torch(state, **{"heads": 3, **options})
        assert "\n" not in str(raised.value)


def test_keys_and_values_of_different_widths_are_refused():
    state = {f"{part}_proj_weight": normal(1, 12, width) for part, width in (("q", 12), ("k", 8), ("v", 7))}
    state["out_proj.weight"] = normal(2, 12, 12)
    with pytest.raises(InputError, match="weights.value: expected 8 columns, as the keys have, got 7"):
        fastattn.MultiHeadAttention.from_torch(state, 3)


WEIGHTS = [
    ({"query": [[1.0]]}, "weights.query: expected a NumPy array of float32, got list"),
    ({"key": np.zeros((12, 20))}, "weights.key: expected a NumPy array of float32, got float64"),
    ({"key": normal(0, 12)}, r"weights.key: expected a matrix \(outputs, inputs\), got shape \(12,\)"),
    ({"key": normal(0, 18, 20)}, "weights.key: expected heads of 6 columns, of a number that divides 4, got 18"),
    ({"key": normal(0, 13, 20)}, "weights.key: expected heads of 6 columns, of a number that divides 4, got 13"),
    ({"key": normal(0, 12, 0)}, r"weights.key: expected a matrix \(outputs, inputs\), got shape \(12, 0\)"),
    ({"value": normal(0, 21, 20)}, "weights.value: expected columns of 2 heads, as the keys have, got 21"),
    ({"output": normal(0, 14, 39)}, "weights.output: expected 40 columns, 4 heads of 10, got 39"),
    ({"output": None}, "weights.output: expected a NumPy array of float32, got NoneType"),
    ({"output_bias": normal(0, 13)}, r"weights.output_bias: expected shape \(14,\), got \(13,\)"),
]


def test_errors_of_weights():
    for change, message in WEIGHTS:
        biases = dict.fromkeys(("key_bias", "value_bias", "output_bias"))
        with pytest.raises(InputError, match=message):
            fastattn.MultiHeadAttention(make_weights()._replace(**{**biases, **change}), 4)


CALLS = [
    (([1.0],), {}, "x: expected a NumPy array of float32, got list"),
    ((np.zeros((2, 9, 20)),), {}, "x: expected a NumPy array of float32, got float64"),
    ((normal(0, 9, 20),), {}, r"x: expected shape \(batch, positions, 20\), got \(9, 20\)"),
    ((normal(0, 2, 9, 19),), {}, r"x: expected shape \(batch, positions, 20\), got \(2, 9, 19\)"),
    ((normal(0, 2, 9, 20),), {}, "memory: expected one, since keys are made of rows 17 wide"),
    ((normal(0, 2, 9, 20), normal(0, 3, 9, 17)), {}, r"memory: .* \(2, positions, 17\), got \(3, 9, 17\)"),
    ((normal(0, 2, 9, 20), normal(0, 2, 9, 17)), {"window": 3}, "window: expected"),
    ((normal(0, 2, 9, 20), normal(0, 2, 9, 17)), {"threads": 0}, "must be at least 1"),
]


def test_errors_of_calls():
    for arguments, options, message in CALLS:
        mha = fastattn.MultiHeadAttention(make_weights(M=17), 4)
        with pytest.raises(InputError, match=message):
            mha(*arguments, **options)


def test_unknown_options():
    for name in ("layout", "out", "dropout_p"):
        with pytest.raises(TypeError, match=f"unexpected keyword argument '{name}'"):
            fastattn.MultiHeadAttention(make_weights(), 4)(normal(0, 2, 9, 20), **{name: None})
        with pytest.raises(InputError, match="weights: expected ProjectionWeights, got dict"):
            fastattn.MultiHeadAttention({}, 4)
