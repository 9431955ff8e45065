"""Marian's arrays by their names -> canonical tensors; weights turn from [inputs, outputs] to [outputs, inputs]."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec import QuantizedTensor, StackSpec, Tensor
from fastattn.weights.marian.item import SETTINGS, Item
from fastattn.weights.marian.options import Architecture

# By what the inputs of a product are multiplied before they are rounded: NAME_QuantMultA beside the weight NAME.
ALPHA = "_QuantMultA"
# Those of a projection that is the table of embeddings, which is nameless where it is turned around.
TIED_ALPHAS = ("none" + ALPHA, "Wemb" + ALPHA)


@dataclass(frozen=True)
class _Part:
    """What a canonical tensor is made of: arrays of one shape, end to end along its rows.

    names   None stands for zeros, or for the identity where the shape is a matrix's
    kind    "vector", "columns" (a linear weight), "rows" (a table)
    alphas  where the scale of a linear weight's inputs may stand; empty: beside each of ``names``
    """

    kind: str
    shape: tuple[int, ...]
    names: tuple[str | None, ...]
    alphas: tuple[str, ...] = ()


def read_tensors(
    architecture: Architecture, items: Mapping[str, Item], alphas: bool | None, where: str
) -> dict[str, Tensor]:
    """The canonical tensors; tied ones are the same object.

    alphas  whether the scales of inputs are used; None: where they are there
    Raises one CheckpointError that names everything missing, left over or misshapen.
    """
    model = architecture.model
    assert model.decoder is not None
    parts = _stack("encoder", model.encoder, architecture) | _stack("decoder", model.decoder, architecture)
    parts |= _embeddings(architecture, items)
    _check(parts, items, where)
    made: dict[_Part, Tensor] = {}
    tensors: dict[str, Tensor] = {}
    problems: list[str] = []
    for name, part in parts.items():
        if part not in made:
            made[part] = _tensor(part, items, alphas, problems)
        tensors[name] = made[part]
    if problems:
        raise CheckpointError(f"{where}: {'; '.join(problems)}")
    return tensors


def _embeddings(architecture: Architecture, items: Mapping[str, Item]) -> dict[str, _Part]:
    """Tables, positions and the projection."""
    encoder, decoder = architecture.model.encoder, architecture.model.decoder
    assert decoder is not None
    width, parts = decoder.width, {}
    tables = ("Wemb", "Wemb") if architecture.tied_source else ("encoder_Wemb", "decoder_Wemb")
    parts["encoder.embedding.weight"] = _Part("rows", (encoder.vocabulary, width), tables[:1])
    parts["decoder.embedding.weight"] = _Part("rows", (decoder.vocabulary, width), tables[1:])
    if decoder.positions == "table":
        positions = _Part("table", (decoder.max_positions, width), ("Wpos",))
        parts |= {"encoder.positions": positions, "decoder.positions": positions}
    if architecture.tied_output:
        tied = dataclasses.replace(parts["decoder.embedding.weight"], alphas=TIED_ALPHAS)
        for name in ("encoder", "decoder") if architecture.tied_source else ("decoder",):
            parts[f"{name}.embedding.weight"] = tied
        parts["decoder.projection.weight"] = tied
    elif "decoder_ff_logit_out_W" in items:
        parts["decoder.projection.weight"] = _Part("columns", (width, decoder.vocabulary), ("decoder_ff_logit_out_W",))
    else:
        parts["decoder.projection.weight"] = _Part(
            "rows", (decoder.vocabulary, width), ("decoder_ff_logit_out_Wt",), ("decoder_ff_logit_out_Wt" + ALPHA,)
        )
    if decoder.projection_bias:
        parts["decoder.projection.bias"] = _Part("vector", (decoder.vocabulary,), ("decoder_ff_logit_out_b",))
    return parts


def _stack(stack: str, spec: StackSpec, architecture: Architecture) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    if spec.embedding_norm:
        parts |= _norm(f"{stack}.embedding_norm", f"{stack}_emb", "_pre", spec)
    for i in range(spec.layers):
        ours = f"{stack}.layers.{i}"
        theirs = f"{stack}_l{architecture.tied_layers[i] if stack == 'decoder' else i + 1}"
        if spec.autoregression == "ssru":
            parts |= _ssru(f"{ours}.ssru", f"{theirs}_rnn", spec)
        elif spec.autoregression == "average-attention":
            parts |= _average_attention(f"{ours}.average_attention", f"{theirs}_aan", spec)
        else:
            parts |= _attention(f"{ours}.self_attention", f"{theirs}_self", {"qkv": "qkv"}, spec, architecture)
        if spec.cross_attention:
            joined = {"query": "q", "key_value": "kv"}
            parts |= _attention(f"{ours}.cross_attention", f"{theirs}_context", joined, spec, architecture)
        parts |= _block_norm(f"{ours}.feed_forward.norm", f"{theirs}_ffn_ffn", spec)
        parts |= _linear(f"{ours}.feed_forward.inner", f"{theirs}_ffn", "1", spec.width, spec.inner_width)
        parts |= _linear(f"{ours}.feed_forward.outer", f"{theirs}_ffn", "2", spec.inner_width, spec.width)
    if spec.final_norm:
        parts |= _norm(f"{stack}.final_norm", f"{stack}_top", "", spec)
    return parts


def _linear(ours: str, theirs: str, ends: str, inputs: int, outputs: int) -> dict[str, _Part]:
    """Linear layers of the same inputs, one for each letter of ``ends``."""
    return {
        f"{ours}.weight": _Part("columns", (inputs, outputs), tuple(f"{theirs}_W{end}" for end in ends)),
        f"{ours}.bias": _Part("vector", (outputs,), tuple(f"{theirs}_b{end}" for end in ends)),
    }


def _identity(ours: str, width: int) -> dict[str, _Part]:
    return {
        f"{ours}.weight": _Part("columns", (width, width), (None,)),
        f"{ours}.bias": _Part("vector", (width,), (None,)),
    }


def _norm(ours: str, theirs: str, end: str, spec: StackSpec) -> dict[str, _Part]:
    kind = "ln" if spec.norm == "layer" else "rms"
    parts = {f"{ours}.weight": _Part("vector", (spec.width,), (f"{theirs}_{kind}_scale{end}",))}
    if spec.norm == "layer":
        parts[f"{ours}.bias"] = _Part("vector", (spec.width,), (f"{theirs}_ln_bias{end}",))
    return parts


def _block_norm(ours: str, theirs: str, spec: StackSpec) -> dict[str, _Part]:
    return _norm(ours, theirs, "_pre" if spec.pre_norm else "", spec)


def _attention(
    ours: str, theirs: str, joined: Mapping[str, str], spec: StackSpec, architecture: Architecture
) -> dict[str, _Part]:
    parts = _block_norm(f"{ours}.norm", f"{theirs}_Wo", spec)
    for name, ends in joined.items():
        parts |= _linear(f"{ours}.{name}", theirs, ends, spec.width, spec.width)
    if architecture.projected:
        return parts | _linear(f"{ours}.output", theirs, "o", spec.width, spec.width)
    return parts | _identity(f"{ours}.output", spec.width)


def _ssru(ours: str, theirs: str, spec: StackSpec) -> dict[str, _Part]:
    # The norm before the unit and the one after it are named differently.
    parts = _block_norm(f"{ours}.norm", theirs if spec.pre_norm else f"{theirs}_ffn", spec)
    names = (f"{theirs}_W", f"{theirs}_Wf")
    parts[f"{ours}.input.weight"] = _Part("columns", (spec.width, spec.width), names)
    parts[f"{ours}.input.bias"] = _Part("vector", (spec.width,), (None, f"{theirs}_bf"))
    return parts


def _average_attention(ours: str, theirs: str, spec: StackSpec) -> dict[str, _Part]:
    parts = _block_norm(f"{ours}.norm", f"{theirs}_ffn", spec)
    if spec.average_inner_width:
        parts |= _linear(f"{ours}.inner", theirs, "1", spec.width, spec.average_inner_width)
        if spec.average_inner_width != spec.width:
            parts |= _linear(f"{ours}.outer", theirs, "2", spec.average_inner_width, spec.width)
        else:  # Marian leaves out what need not bring the rows back to their width
            parts |= _identity(f"{ours}.outer", spec.width)
    if spec.average_gates:
        parts |= _linear(f"{ours}.input_gate", theirs, "i", spec.width, spec.width)
        parts |= _linear(f"{ours}.forget_gate", theirs, "f", spec.width, spec.width)
    return parts


def _check(parts: Mapping[str, _Part], items: Mapping[str, Item], where: str) -> None:
    shapes = {name: part.shape for part in parts.values() for name in part.names if name is not None}
    problems = [f"missing {name} {list(shape)}" for name, shape in shapes.items() if name not in items]
    problems += [
        f"unexpected {name} {list(item.shape)}"
        for name, item in items.items()
        if name not in shapes and name != SETTINGS and not name.endswith(ALPHA)
    ]
    problems += [
        f"{name} should be {list(shape)}, is {list(items[name].shape)}"
        for name, shape in shapes.items()
        if name in items and items[name].shape not in (shape, (1,) * (len(shape) == 1) + shape)
    ]
    if problems:
        raise CheckpointError(f"{where}: arrays do not fit the model's options: " + "; ".join(problems))


# Weights that are not finite, or become so, pass unremarked: they are data.
@np.errstate(over="ignore", invalid="ignore")
def _tensor(part: _Part, items: Mapping[str, Item], alphas: bool | None, problems: list[str]) -> Tensor:
    if part.kind == "vector":
        (size,) = part.shape
        vectors = [np.zeros(size, np.float32) if name is None else items[name].vector for name in part.names]
        return vectors[0] if len(vectors) == 1 else np.concatenate(vectors)
    if None in part.names:
        return np.eye(*part.shape, dtype=np.float32)
    found = [items[str(name)] for name in part.names]
    matrices = [item.columns if part.kind == "columns" else item.rows for item in found]
    quantized = [matrix for matrix in matrices if isinstance(matrix, QuantizedTensor)]
    if part.kind == "table" or len(quantized) < len(matrices):
        plain = [matrix.float32() if isinstance(matrix, QuantizedTensor) else matrix for matrix in matrices]
        return plain[0] if len(plain) == 1 else np.concatenate(plain)
    joined = quantized[0]
    if len(quantized) > 1:
        joined = QuantizedTensor(
            np.concatenate([matrix.values_FD for matrix in quantized]),
            np.concatenate([matrix.multipliers_F for matrix in quantized]),
        )
    if alphas is False or (part.kind == "rows" and not part.alphas):
        return joined
    return dataclasses.replace(joined, input_scale=_input_scale(part, items, bool(alphas), problems))


def _input_scale(part: _Part, items: Mapping[str, Item], needed: bool, problems: list[str]) -> float | None:
    """The scale of the inputs, the same for all that are joined."""
    places = [part.alphas] if part.alphas else [(f"{name}{ALPHA}",) for name in part.names]
    found, lost = [], []
    for names in places:
        # browsermt quantises that of a table too, which is there under another name as well.
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
