"""Folders with 4-bit weights: which matrices have them, the bits that come back, what is refused."""

import numpy as np

from fastattn import Translator
from fastattn.errors import CheckpointError
from fastattn.layers.parameters import Parameters
from fastattn.loading.model_cache import PackedWeights
from fastattn.ops import reference
from fastattn.spec.quantized import Int4Tensor, QuantizedTensor, UnreadTensor, form_of, in_memory, unread
from fastattn.spec.rounding import quantize, quantize_groups
from fastattn.weights import read
from fastattn.weights.native import convert
from fastattn.weights.tensor_mapping import _concatenate, _select_rows, sources
from tests.loading.caches import empty_cache
from tests.messages import refused
from tests.models.tiny_models import VARIETIES, random_checkpoint
from tests.weights.native.folders import converted, filled, rewrite
from tests.weights.refusals import refuses

SIZES = {"width": 64, "inner_width": 96, "gated": True, "norm": "rms", "head_width": 10}  # 40 inputs of outputs
TEXTS = ["▁w1 ▁w2 ▁w3", "▁w9"]


def model(**changes):
    return random_checkpoint(3, **SIZES | changes)


def scores(translator):
    return [list(score.log_probs) for score in translator.score(TEXTS, TEXTS[::-1])]


def test_linear_layers_of_whole_groups_have_4_bits_and_come_back(tmp_path):
    original = model()
    again = read(converted(original, tmp_path / "once", "int4"))
    assert again.precision == "int4"
    for name, tensor in original.tensors.items():
        found = again.tensors[name]
        if "norm" in name or tensor.ndim == 1:
            np.testing.assert_array_equal(found, tensor)
        elif tensor.shape[1] % 32 or "embedding" in name or "projection" in name:
            assert isinstance(found, QuantizedTensor), name
            np.testing.assert_array_equal(found.float32(), quantize(tensor, name).float32())
        else:
            assert isinstance(found, Int4Tensor) and found.shape == tensor.shape, name
            np.testing.assert_array_equal(found.float32(), quantize_groups(tensor, name).float32())
    twice = read(converted(again, tmp_path / "twice", "int4"))
    for name, tensor in again.tensors.items():
        np.testing.assert_equal(*(getattr(one, "__dict__", one) for one in (twice.tensors[name], tensor)))
    size = (tmp_path / "once" / "model.safetensors").stat().st_size
    assert 0 <= size - convert.weight_bytes(original, "int4") < 20_000
    name = "encoder.layers.0.feed_forward.outer.weight"
    float32, int8 = (read(converted(again, tmp_path / form, form)).tensors[name] for form in ("float32", "int8"))
    np.testing.assert_array_equal(float32, again.tensors[name].float32())  # and back
    np.testing.assert_array_equal(int8.float32(), quantize(float32, "").float32())


def test_a_converted_folder_has_the_bits_of_what_is_rounded_when_loaded(tmp_path, monkeypatch):
    empty_cache(tmp_path / "cache", monkeypatch)
    checkpoint = model()
    folder = converted(checkpoint, tmp_path / "folder", "int4")
    for name in ("encoder.embedding.weight", "decoder.embedding.weight"):  # which only a folder rounds
        checkpoint.tensors[name] = quantize(checkpoint.tensors[name], name)
    expected = scores(Translator.from_checkpoint(checkpoint, "int4"))
    assert expected != scores(Translator.from_checkpoint(checkpoint, "int8"))
    translator = Translator(folder)
    assert translator.precision == "int4" and scores(translator) == expected
    made = []
    monkeypatch.setattr(PackedWeights, "save", lambda self: made.extend(self._new_layers))
    assert scores(Translator(folder)) == expected and made == []  # mapped
    files = [path.name for path in (tmp_path / "cache" / "packed").glob("*.packed")]
    assert len(files) == 1 and "-int4-" in files[0]


def test_a_recurrent_model_in_int4_is_int8(tmp_path):
    checkpoint = random_checkpoint(1, **VARIETIES["gru alone"])
    one, other = (scores(Translator.from_checkpoint(checkpoint, precision)) for precision in ("int4", "int8"))
    assert one == other
    kept = read(converted(checkpoint, tmp_path / "folder", "int4")).tensors.values()
    assert not any(isinstance(tensor, Int4Tensor) for tensor in kept)


def test_scales_and_minima_that_do_not_fit_are_refused(tmp_path):
    folder = converted(model(), tmp_path / "folder", "int4")
    right = (folder / "model.safetensors").read_bytes()
    rows, groups = 96, 2
    for end in (".scales", ".minima"):
        name = f"encoder.layers.0.feed_forward.inner.weight{end}"
        for wrong in (None, filled("F32", rows, groups), filled("F16", rows, 1), filled("F16", rows, 3)):
            rewrite(folder, {name: wrong})
            refuses(folder, f"{name} should be there, F16, one for each group of 32")
            (folder / "model.safetensors").write_bytes(right)
        rewrite(folder, {name: filled("F16", rows, groups)})
        read(folder)


def test_values_beyond_float16_are_refused(tmp_path):
    checkpoint = model()
    checkpoint.tensors["encoder.layers.0.feed_forward.inner.weight"][0, 0] = 1e7
    with refused(CheckpointError, "inner.weight"):
        converted(checkpoint, tmp_path / "folder", "int4")


def test_4_bits_beside_8_become_8_and_tables_do():
    """As GGUF files mix them: what is joined, a gate and its layer, an embedding table, tied or not."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((48, 64), np.float32) for _ in range(3)]
    four, eight = quantize_groups(weights[0], ""), quantize(weights[1], "")

    def join(*tensors):
        return in_memory(_concatenate([unread(tensor) for tensor in tensors]))

    joined = join(four, four)
    assert isinstance(joined, Int4Tensor)
    np.testing.assert_array_equal(joined.float32(), np.concatenate([four.float32()] * 2))
    mixed = join(four, eight)
    assert form_of(mixed) == "blocks"  # which becomes int8
    np.testing.assert_array_equal(mixed.float32(), np.concatenate([four.float32(), eight.float32()]))
    np.testing.assert_array_equal(join(four, weights[2]), np.concatenate([four.float32(), weights[2]]))

    names = ("a", "b", "c", "decoder.projection", "decoder.embedding", "encoder.embedding")
    tensors = dict(zip((f"{name}.weight" for name in names), (four, eight, weights[2], four, four, joined)))
    parameters = Parameters(tensors, reference, "int4")
    usual = parameters.default_precision
    assert [usual(*each) for each in ("a", "b", "c", "ac", "ab")] == ["int4", "int8", "int4", "int4", "int8"]
    assert usual("decoder.projection") == "int8"
    table = parameters.table("decoder.embedding.weight")
    assert table is parameters.packed("decoder.projection")
    np.testing.assert_array_equal(table.weight_FD, quantize(four.float32(), "").float32())
    alone = parameters.table("encoder.embedding.weight")
    assert isinstance(alone, QuantizedTensor)
    np.testing.assert_array_equal(alone.float32(), quantize(joined.float32(), "").float32())


def test_pieces_of_few_bits_keep_their_bits():
    """As Phi-3's files have a gate and what it multiplies in one matrix."""
    four = quantize_groups(np.random.default_rng(0).standard_normal((6, 64), np.float32), "")
    blocked = UnreadTensor(four.shape, lambda first, last: four.float32()[first:last], "blocks")
    for number in range(2):
        part, expected = sources("a", split=(number, 2)), four.float32()[3 * number : 3 * number + 3]
        for whole in (four, blocked):
            piece = _select_rows(part, unread(whole))
            assert piece.form == form_of(whole) and piece.shape == (3, 64)
            np.testing.assert_array_equal(piece.float32(), expected)
