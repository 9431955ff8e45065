"""The tensors of a Hugging Face MarianMT model, by canonical name."""

import numpy as np

from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import Tensor
from fastattn.weights.containers.safetensors import StoredTensor
from fastattn.weights.huggingface.weights import MISFIT
from fastattn.weights.tensor_mapping import FirstRow, as_float32, canonical_tensors, sources, zeros

SHARED, SOURCE, TARGET, HEAD = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
    "lm_head.weight",
)


def _sinusoids(shape: tuple[int, ...]) -> np.ndarray:
    """[positions, width]: sines in the first half of a row and cosines in the second, of p / 10000^(2i/D).

    In float64, then rounded, as transformers computes it.
    """
    positions, width = shape
    half = (width + 1) // 2
    angles_PH = np.arange(positions)[:, None] / np.power(10000, 2 * np.arange(half) / width)
    table_PD = np.empty((positions, width), np.float32)
    table_PD[:, :half] = np.sin(angles_PH)
    table_PD[:, half:] = np.cos(angles_PH[:, : width - half])
    return table_PD


TABLE = {
    "STACK.embedding.weight": sources("STACK.embed_tokens.weight"),
    "STACK.positions": sources("STACK.embed_positions.weight", absent=_sinusoids),
    "STACK.layers.#.self_attention.qkv.*": sources(
        "STACK.layers.#.self_attn.q_proj.*", "STACK.layers.#.self_attn.k_proj.*", "STACK.layers.#.self_attn.v_proj.*"
    ),
    "STACK.layers.#.self_attention.output.*": sources("STACK.layers.#.self_attn.out_proj.*"),
    "STACK.layers.#.self_attention.norm.*": sources("STACK.layers.#.self_attn_layer_norm.*"),
    "decoder.layers.#.cross_attention.query.*": sources("decoder.layers.#.encoder_attn.q_proj.*"),
    "decoder.layers.#.cross_attention.key_value.*": sources(
        "decoder.layers.#.encoder_attn.k_proj.*", "decoder.layers.#.encoder_attn.v_proj.*"
    ),
    "decoder.layers.#.cross_attention.output.*": sources("decoder.layers.#.encoder_attn.out_proj.*"),
    "decoder.layers.#.cross_attention.norm.*": sources("decoder.layers.#.encoder_attn_layer_norm.*"),
    "STACK.layers.#.feed_forward.inner.*": sources("STACK.layers.#.fc1.*"),
    "STACK.layers.#.feed_forward.outer.*": sources("STACK.layers.#.fc2.*"),
    "STACK.layers.#.feed_forward.norm.*": sources("STACK.layers.#.final_layer_norm.*"),
    "decoder.projection.weight": sources("lm_head.weight"),
    "decoder.projection.bias": sources(None, plus=FirstRow("final_logits_bias", rows=1), absent=zeros),
}


def read_translator_tensors(
    stored: dict[str, StoredTensor], spec: ModelSpec, shared: bool, tied: bool, where: str
) -> dict[str, np.ndarray]:
    """The tensors of a file, names without ``model.``; embeddings of equal values share one array.

    shared  whether both stacks share one embedding table
    tied    whether the output layer is the decoder's table
    """
    _tie(stored, shared, tied)
    return _with_equal_tables_tied(canonical_tensors(TABLE, spec, stored, where, MISFIT))


def _tie(stored: dict[str, StoredTensor], shared: bool, tied: bool) -> None:
    """Add the missing names of embeddings and output layer that share a tensor, in place.

    A tensor that the file has under its own name is kept, as in transformers.
    """
    names = [name for name, joins in ((SHARED, shared), (TARGET, True), (SOURCE, shared), (HEAD, tied)) if joins]
    found = next((stored[name] for name in names if name in stored), None)
    for name in names:
        if name != SHARED and found is not None:
            stored.setdefault(name, found)
    if shared:
        stored.pop(SHARED, None)


def _with_equal_tables_tied(tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    """The tensors; embeddings and output layer of equal values, which files may store separately, share one array."""
    arrays = {name: as_float32(tensor) for name, tensor in tensors.items()}
    first, *others = ("decoder.embedding.weight", "decoder.projection.weight", "encoder.embedding.weight")
    known = [arrays[first]]
    for name in others:
        array_VD = arrays[name]
        arrays[name] = next((one for one in known if one is array_VD or np.array_equal(one, array_VD)), array_VD)
        known.append(arrays[name])
    return arrays
