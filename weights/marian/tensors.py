"""Marian's arrays by name -> canonical tensors; weights are transposed from [inputs, outputs] to [outputs, inputs]."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.printable import first_of
from fastattn.spec.quantized import QuantizedTensor, Tensor
from fastattn.weights.marian.model_file import SETTINGS, Item
from fastattn.weights.marian.options import MarianArchitecture
from fastattn.weights.tensor_mapping import TensorSources, check_sources, identity, make_tensors, map_tensors, sources

# The scale of a product's inputs before they are rounded: NAME_QuantMultA for the weight NAME.
ALPHA = "_QuantMultA"
# Those of a projection tied to the embedding table, which has no name once it is transposed.
TIED_ALPHAS = ("none" + ALPHA, "Wemb" + ALPHA)


def read_tensors(
    architecture: MarianArchitecture, items: Mapping[str, Item], alphas: bool | None, where: str
) -> dict[str, Tensor]:
    """The canonical tensors; tied ones are the same object.

    alphas  whether the scales of inputs are used; None: if the file has them
    Raises one CheckpointError that names all arrays missing, left over or misshapen.
    """
    encoder = architecture.model.encoder
    assert encoder is not None
    numbers = {"encoder": range(1, encoder.layers + 1), "decoder": architecture.tied_layers}
    parts = map_tensors(_table(architecture, items), architecture.model, numbers)
    weights = {name: item for name, item in items.items() if name != SETTINGS and not name.endswith(ALPHA)}
    check_sources(parts, weights, where, "arrays do not fit the model's options")
    tensors = make_tensors(parts, weights)
    return tensors if alphas is False else _with_input_scales(parts, tensors, architecture, items, bool(alphas), where)


def _table(architecture: MarianArchitecture, items: Mapping[str, Item]) -> dict[str, TensorSources]:
    """Marian's names of its arrays; a norm's name depends on its kind and on whether it comes before its block."""
    spec, decoder = architecture.model.encoder, architecture.model.decoder
    assert spec is not None and decoder is not None
    kind, suffix = "ln" if spec.norms.kind == "layer" else "rms", "_pre" if spec.norms.before else ""
    linear = partial(sources, ends=("W", "b"), transposed=True, flat=True)
    norm = partial(sources, ends=("scale", "bias"), flat=True)
    tables = ("Wemb", "Wemb") if architecture.tied_source else ("encoder_Wemb", "decoder_Wemb")
    table = {
        "encoder.embedding.weight": sources(tables[0]),
        "decoder.embedding.weight": sources(tables[1]),
        "STACK.positions": sources("Wpos"),
        "STACK.embedding_norm.*": norm(f"STACK_emb_{kind}_*_pre"),
        "STACK.layers.#.self_attention.norm.*": norm(f"STACK_l#_self_Wo_{kind}_*{suffix}"),
        "STACK.layers.#.self_attention.qkv.*": linear("STACK_l#_self_*q", "STACK_l#_self_*k", "STACK_l#_self_*v"),
        "STACK.layers.#.self_attention.output.*": linear("STACK_l#_self_*o"),
        # The norm before the unit and the one after it are named differently.
        "decoder.layers.#.ssru.norm.*": norm(f"decoder_l#_rnn{'' if spec.norms.before else '_ffn'}_{kind}_*{suffix}"),
        "decoder.layers.#.ssru.input.weight": linear("decoder_l#_rnn_W", "decoder_l#_rnn_Wf"),
        "decoder.layers.#.ssru.input.bias": linear(None, "decoder_l#_rnn_bf"),
        "decoder.layers.#.average_attention.norm.*": norm(f"decoder_l#_aan_ffn_{kind}_*{suffix}"),
        "decoder.layers.#.average_attention.inner.*": linear("decoder_l#_aan_*1"),
        "decoder.layers.#.average_attention.outer.*": linear("decoder_l#_aan_*2"),
        "decoder.layers.#.average_attention.input_gate.*": linear("decoder_l#_aan_*i"),
        "decoder.layers.#.average_attention.forget_gate.*": linear("decoder_l#_aan_*f"),
        "decoder.layers.#.cross_attention.norm.*": norm(f"decoder_l#_context_Wo_{kind}_*{suffix}"),
        "decoder.layers.#.cross_attention.query.*": linear("decoder_l#_context_*q"),
        "decoder.layers.#.cross_attention.key_value.*": linear("decoder_l#_context_*k", "decoder_l#_context_*v"),
        "decoder.layers.#.cross_attention.output.*": linear("decoder_l#_context_*o"),
        "STACK.layers.#.feed_forward.norm.*": norm(f"STACK_l#_ffn_ffn_{kind}_*{suffix}"),
        "STACK.layers.#.feed_forward.inner.*": linear("STACK_l#_ffn_*1"),
        "STACK.layers.#.feed_forward.outer.*": linear("STACK_l#_ffn_*2"),
        "STACK.final_norm.*": norm(f"STACK_top_{kind}_*"),
        "decoder.projection.weight": sources("decoder_ff_logit_out_Wt"),
        "decoder.projection.bias": linear("decoder_ff_logit_out_b"),
    }
    if architecture.tied_output:
        table["decoder.projection.weight"] = table["decoder.embedding.weight"]
    elif "decoder_ff_logit_out_W" in items:
        table["decoder.projection.weight"] = linear("decoder_ff_logit_out_W")
    if not architecture.projected:
        table |= _left_out("STACK.layers.#.self_attention.output") | _left_out(
            "decoder.layers.#.cross_attention.output"
        )
    if decoder.recurrence is not None and decoder.recurrence.inner_width == decoder.width:
        table |= _left_out("decoder.layers.#.average_attention.outer")  # not needed to restore the width
    return table


def _left_out(name: str) -> dict[str, TensorSources]:
    """A linear layer that Marian does not have, as the identity."""
    return {f"{name}.weight": sources(absent=identity), f"{name}.bias": sources(None)}


def _with_input_scales(
    parts: Mapping[str, TensorSources],
    tensors: Mapping[str, Tensor],
    architecture: MarianArchitecture,
    items: Mapping[str, Item],
    needed: bool,
    where: str,
) -> dict[str, Tensor]:
    """The int8 matrices with their input scales; an embedding table has one only if it is also the projection."""
    problems: list[str] = []
    tied = tensors["decoder.projection.weight"] if architecture.tied_output else None
    scaled: dict[int, Tensor] = {}
    for name, tensor in tensors.items():
        is_table = name.endswith("embedding.weight") and tensor is not tied
        if id(tensor) not in scaled and isinstance(tensor, QuantizedTensor) and not is_table:
            beside = [(f"{theirs}{ALPHA}",) for theirs in parts[name].names]
            scale = _input_scale([TIED_ALPHAS] if tensor is tied else beside, items, needed, problems)
            scaled[id(tensor)] = replace(tensor, input_scale=scale)
    if problems:
        raise CheckpointError(f"{where}: {'; '.join(first_of(problems, 'of the kind'))}")
    return {name: scaled.get(id(tensor), tensor) for name, tensor in tensors.items()}


def _input_scale(
    name_lists: Sequence[tuple[str, ...]], items: Mapping[str, Item], needed: bool, problems: list[str]
) -> float | None:
    """The scale of the inputs, the same for all joined weights; ``name_lists`` has the possible names of each."""
    found, lost = [], []
    for names in name_lists:
        # browsermt quantizes a table's scale too, which also has another name.
        there = [name for name in names if name in items and items[name].multiplier is None]
        found += there[:1]
        lost += [] if there else [" or ".join(names)]
    if lost:
        problems += [f"missing {name}, a scale of inputs" for name in lost if needed or found]
        return None
    scales = np.concatenate([items[name].vector for name in found])
    if len(scales) != len(found) or (scales != scales[0]).any():
        problems.append(f"{', '.join(found)} should be one number, the same for all, as they scale the same inputs")
        return None
    scale = float(scales[0])
    if not 1e-30 < scale < 1e30:
        problems.append(f"{found[0]} should be from 1e-30 to 1e30, is {scale}")
        return None
    return scale
