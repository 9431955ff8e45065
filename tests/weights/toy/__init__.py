"""An exporter as docs/architecture.md has one added, of a format made up for it: toy.json and toy.floats.

toy.json says the sizes, the words, and the name and shape of each array; toy.floats has their float32 end to end, as
[inputs, outputs] where they are weights, queries, keys and values apart.
"""

import math
from dataclasses import replace
from pathlib import Path

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import AttentionSpec, FeedForwardSpec, ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.weights.containers.json_file import JsonObject, is_text, read_object
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.folder import Directory
from fastattn.weights.tensor_mapping import canonical_tensors, sources

SPECIAL = {"<unk>", "</s>"}
DESCRIPTION = "toy folder (toy.json, toy.floats)"
TABLE = {
    "STACK.embedding.weight": sources("STACK/words"),
    "STACK.layers.#.self_attention.norm.*": sources("STACK/#/look/norm/*", ends=("scale", "shift")),
    "STACK.layers.#.self_attention.qkv.*": sources(
        "STACK/#/look/q/*", "STACK/#/look/k/*", "STACK/#/look/v/*", transposed=True
    ),
    "STACK.layers.#.self_attention.output.*": sources("STACK/#/look/out/*", transposed=True),
    "decoder.layers.#.cross_attention.norm.*": sources("decoder/#/read/norm/*", ends=("scale", "shift")),
    "decoder.layers.#.cross_attention.query.*": sources("decoder/#/read/q/*", transposed=True),
    "decoder.layers.#.cross_attention.key_value.*": sources(
        "decoder/#/read/k/*", "decoder/#/read/v/*", transposed=True
    ),
    "decoder.layers.#.cross_attention.output.*": sources("decoder/#/read/out/*", transposed=True),
    "STACK.layers.#.feed_forward.norm.*": sources("STACK/#/think/norm/*", ends=("scale", "shift")),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK/#/think/in/*", transposed=True),
    "STACK.layers.#.feed_forward.outer.*": sources("STACK/#/think/out/*", transposed=True),
    "STACK.final_norm.*": sources("STACK/norm/*", ends=("scale", "shift")),
    "decoder.projection.*": sources("decoder/say/*", transposed=True),
}


def recognize(path: Path) -> bool:
    return (path / "toy.json").exists()


def read(folder: Directory) -> Checkpoint:
    """Read a folder; raises CheckpointError for what is malformed, incomplete or not supported."""
    config, where = read_object(folder, "toy.json"), folder.where("toy.floats")
    spec, words = _spec(config), _words(config)
    arrays = _arrays(config.nested("arrays"), folder.read("toy.floats"), where)
    if spec.encoder.layers > len(arrays):
        raise CheckpointError(f"{config.where}: {spec.encoder.layers} layers, but {len(arrays)} arrays")
    tensors = canonical_tensors(TABLE, spec, arrays, where, "arrays do not fit toy.json")
    return Checkpoint(spec, tensors, TranslationText(words, words), format="toy", files=tuple(folder.files_read))


def _spec(config: JsonObject) -> ModelSpec:
    layers, width, heads, inner = (
        config.integer(name, minimum=1) for name in ("layers", "width", "heads", "inner_width")
    )
    if width % heads:
        raise config.error("width", f"a multiple of heads {heads}", width)
    attention, words = AttentionSpec(heads, heads, width // heads), len(_words(config))
    stack = StackSpec(layers, width, vocabulary=words, attention=attention, feed_forward=FeedForwardSpec(inner))
    return ModelSpec("encoder-decoder", stack, replace(stack, cross_attention=True, projection_bias=True))


def _words(config: JsonObject) -> tuple[str, ...]:
    words = config.values.get("words")
    if not isinstance(words, list) or not all(map(is_text, words)) or not SPECIAL <= set(words):
        raise config.error("words", f"strings, {' and '.join(sorted(SPECIAL))} among them", words)
    return tuple(words)


def _arrays(shapes: JsonObject, data: memoryview, where: str) -> dict[str, StoredTensor]:
    """Arrays over the bytes of toy.floats."""
    arrays, begin = {}, 0
    for name, shape in shapes.values.items():
        if not isinstance(shape, list) or not all(type(size) is int and 0 < size < 1 << 31 for size in shape[:2]):
            raise shapes.error(name, "one size or two", shape)
        end = begin + 4 * math.prod(shape)
        arrays[name] = StoredTensor("F32", tuple(shape), data[begin:end], f"{where}: {name}")
        begin = end
    if begin != len(data):
        raise CheckpointError(f"{where}: the arrays take {begin} bytes, the file has {len(data)}")
    return arrays
