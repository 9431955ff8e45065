"""Language models in GGUF files: the results of transformers' own; parts of files; what is not supported, by name."""

import numpy as np
import pytest

from fastattn import Generator, weights
from fastattn.cli.inspect import model_facts
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.spec.quantized import as_float32, form_of
from fastattn.spec.text_spec import GeneratorText
from fastattn.weights.containers.gguf import parse_gguf
from fastattn.weights.gguf import recognize
from fastattn.weights.gguf.architecture import EMBEDDING
from fastattn.weights.native.convert import weight_bytes
from tests.weights.gguf import models, writer
from tests.weights.gguf.writer import Value, gguf_bytes
from tests.weights.native.folders import converted
from tests.weights.refusals import refuses


def written(folder, metadata, tensors, name="m.gguf"):
    (folder / name).write_bytes(gguf_bytes(metadata, tensors))
    return folder / name


def part_of(folder, i, metadata, tensors):
    """Part i of two."""
    split = {"split.no": Value("u16", i), "split.count": Value("u16", 2)}
    return written(folder, metadata | split, tensors, f"x-0000{i + 1}-of-00002.gguf")


@pytest.mark.parametrize("name", models.names())
def test_a_model_has_the_results_of_transformers(tmp_path, name):
    (tmp_path / "model.gguf").write_bytes(models.file(name))
    checkpoint = weights.read(tmp_path)
    assert isinstance(checkpoint.input, GeneratorText) and checkpoint.input.end_ids == (2,)
    assert (checkpoint.format, checkpoint.precision) == ("gguf", "float32")
    ids_N, expected_KV = models.expected(name)
    model = build_model(checkpoint, reference)
    rows_ND, _ = model.prefill(ids_N, np.array([0, len(ids_N)]))
    found_KV = model.output.all_log_probs(rows_ND)[-len(expected_KV) :]
    np.testing.assert_allclose(found_KV, expected_KV, atol=2e-5 * np.abs(expected_KV).max())


def test_blocks_in_place_of_floats(tmp_path):
    (tmp_path / "model.gguf").write_bytes(models.of_blocks())
    checkpoint = weights.read(tmp_path / "model.gguf")
    stored = parse_gguf(memoryview(models.of_blocks()), "x").tensors
    assert {tensor.dtype for tensor in stored.values()} == {"F32", "BF16", "Q8_0", "Q4_1"}
    for name, theirs in {"embedding": "token_embd", "layers.1.feed_forward.outer": "blk.1.ffn_down"}.items():
        found = as_float32(checkpoint.tensors[f"decoder.{name}.weight"])
        assert np.array_equal(found, stored[f"{theirs}.weight"].float32())
    assert dict(model_facts(checkpoint))["precision"].startswith("int4 in the file; auto is int4, about 0.0 MB")


def test_a_converted_folder_has_the_bits_of_its_file(tmp_path):
    """The table, which is the projection too, in groups as in the file, and what has parts of 4 and of 8 bits."""
    path = tmp_path / "model.gguf"
    path.write_bytes(models.of_blocks(table="Q8_0"))
    checkpoint = weights.read(path)
    folder = converted(checkpoint, tmp_path / "folder", "int4")
    assert 0 <= (folder / "model.safetensors").stat().st_size - weight_bytes(checkpoint, "int4") < 20_000
    found, ids = weights.read(folder).tensors, np.arange(5, 30, dtype=np.int32)
    for name in ("embedding.weight", "projection.weight", "layers.0.self_attention.qkv.weight"):
        assert form_of(found[f"decoder.{name}"]) == "blocks", name
    scores = [Generator(each).score(ids) for each in (path, folder)]
    assert scores[0].log_probs.tobytes() == scores[1].log_probs.tobytes()
    again = weights.read(converted(weights.read(folder), tmp_path / "again", "int4"))
    assert all(np.array_equal(as_float32(found[name]), as_float32(again.tensors[name])) for name in found)


def test_a_file_in_parts_is_one_model(tmp_path):
    metadata, tensors = models.contents("qwen2")
    names = list(tensors)
    whole = weights.read(written(tmp_path, metadata, tensors, "whole.gguf"))
    folder = tmp_path / "parts"
    folder.mkdir()
    for i, part in enumerate((names[:5], names[5:])):
        part_of(folder, i, {} if i else metadata, {name: tensors[name] for name in part})
    for path in (folder, folder / "x-00001-of-00002.gguf", folder / "x-00002-of-00002.gguf"):
        found = weights.read(path)
        assert found.spec == whole.spec and len(found.files) == 2
        assert all(np.array_equal(found.tensors[name], whole.tensors[name]) for name in whole.tensors)
    first = part_of(folder, 0, metadata, tensors)
    refuses(folder)
    first.write_bytes((folder / "x-00002-of-00002.gguf").read_bytes())
    refuses(folder)
    first.unlink()
    refuses(folder)
    whole_file = written(folder, metadata, tensors, "a.gguf")
    refuses(folder)
    assert weights.read(whole_file).format == "gguf"
    (folder / "model.safetensors").write_bytes(b"")
    assert not recognize(folder)


CHANGED = [
    {"general.architecture": "mamba"}, {"general.architecture": None}, {"block_count": None},
    {"expert_count": ("u32", 8)}, {"block_count": ("u32", 1000)}, {"block_count": ("u32", 1 << 30)},
    {"block_count": ("u32", [1, 2])}, {"logit_scale": ("f32", [1.0, 2.0])}, {"attention.sliding_window": ("u32", 4)},
    {"rope.scaling.type": "longrope"}, {"rope.scaling.yarn_attn_factor": ("f32", 2.0)},
    {"rope.dimension_count": ("u32", 4)}, {"attention.key_length": ("u32", 8), "attention.value_length": ("u32", 4)},
    {"feed_forward_length": ("u32", 5)}, {"tokenizer.ggml.model": "t5"},
]  # fmt: skip


def test_what_is_not_supported_is_named(tmp_path):
    metadata, tensors = models.contents("llama")
    for changes in CHANGED:
        wrong = dict(metadata)
        for key, value in changes.items():
            name = key if key.startswith(("general", "tokenizer")) else f"llama.{key}"
            wrong[name] = Value(*value) if isinstance(value, tuple) else value
        written(tmp_path, {key: value for key, value in wrong.items() if value is not None}, tensors)
        refuses(tmp_path)
    metadata, tensors = models.contents("phi3")  # more heads than columns
    written(tmp_path, metadata | {"phi3.embedding_length": Value("u32", 1)}, tensors)
    refuses(tmp_path)


def test_tensors_that_are_not_the_architecture_s(tmp_path):
    metadata, tensors = models.contents("llama")
    factors = ({"rope_freqs.weight": writer.stored("F32", numbers)} for numbers in ([1, 1, 1.5, 2], [np.nan]))
    more = [{"blk.0.attn_sinks.weight": writer.stored("F32", [1.0])}, *factors]
    lacking = [{key: tensors[key] for key in tensors if key != name} for name in ("blk.1.ffn_up.weight", EMBEDDING)]
    for wrong in (*(tensors | one for one in more), *lacking):
        written(tmp_path, metadata, wrong)
        refuses(tmp_path)
