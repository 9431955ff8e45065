"""CTranslate2's variables -> canonical tensors, one for each: its layers are joined as ours are."""

import re
from collections.abc import Mapping
from dataclasses import replace

from fastattn.spec.architecture import ModelSpec
from fastattn.spec.quantized import Tensor
from fastattn.weights.ctranslate2.file import Variable
from fastattn.weights.ctranslate2.spec import Attributes
from fastattn.weights.tensor_mapping import (
    FirstRow,
    canonical_sources,
    check_sources,
    make_tensors,
    zeros,
)

NAME = re.compile(r"(encoder|decoder)/(?:(layer)_(\d+)/)?(.+)/(gamma|beta|weight|bias)")
ENDS = {"gamma": "weight", "beta": "bias", "weight": "weight", "bias": "bias"}
STACK_PARTS = {
    "embeddings": "embedding",
    "embeddings_0": "embedding",
    "layernorm_embedding": "embedding_norm",
    "layer_norm": "final_norm",
    "projection": "projection",
}
LAYER_PARTS = {
    "self_attention/layer_norm": "self_attention.norm",
    "self_attention/linear_0": "self_attention.qkv",
    "self_attention/linear_1": "self_attention.output",
    "attention/layer_norm": "cross_attention.norm",
    "attention/linear_0": "cross_attention.query",
    "attention/linear_1": "cross_attention.key_value",
    "attention/linear_2": "cross_attention.output",
    "ffn/layer_norm": "feed_forward.norm",
    "ffn/linear_0": "feed_forward.inner",
    "ffn/linear_0_noact": "feed_forward.inner_linear",
    "ffn/linear_1": "feed_forward.outer",
}
OTHERS = {f"{stack}/position_encodings/encodings": f"{stack}.positions" for stack in ("encoder", "decoder")}
TYPES = "encoder/embeddings_1/weight"
AROUND_ONE = "layer_norm_use_residual"  # beside a norm's gamma
# Last parts of the names of variables that are read elsewhere or belong to another variable.
NO_TENSORS = Attributes.NAMES | {"weight_scale", "relative_attention_bias", "relative_attention_max_distance"}


def read_tensors(variables: Mapping[str, Variable], spec: ModelSpec, where: str) -> dict[str, Tensor]:
    """The canonical tensors; raises one CheckpointError for all that are missing, left over or misshapen."""
    named = {}  # those without a canonical name keep their own, to be reported
    for name, variable in variables.items():
        canonical = _canonical_name(name)
        # An encoder's output does not need the pooler.
        others = name.rpartition("/")[2] in NO_TENSORS or name.startswith("pooler_") or name == TYPES
        if canonical is not None or not others:
            named[canonical or name] = variable
    for stack, its in spec.stacks.items():
        own = its.positions.of_each_layer  # else all use the first layer's table, as in T5
        for i in range((its.layers if own else 1) if its.positions.kind == "relative" else 0):
            scope = f"{stack}.layers.{i}.self_attention" if own else stack
            named[f"{scope}.relative_bias"] = variables[f"{stack}/layer_{i}/self_attention/relative_attention_bias"]
    parts = canonical_sources(spec)
    for name, part in parts.items():
        # zeros for a missing bias: a StackSpec has one flag for the biases of all linear layers
        if name.endswith(".bias") and ".layers." in name and not name.endswith(".norm.bias"):
            parts[name] = replace(part, absent=zeros)
    for name in variables:
        flag = variables.get(name.removesuffix("gamma") + AROUND_ONE) if name.endswith("/gamma") else None
        if flag is not None and flag.scalar() and (norm := _canonical_name(name)) in parts:
            parts[norm] = replace(parts[norm], offset=1.0)  # it multiplies by 1 + gamma
    types = variables.get(TYPES)
    if types is not None and types.shape[0]:  # all tokens are of type 0, so its row is added to the positions
        row = FirstRow(TYPES, types.shape[0], spec.stacks["encoder"].embedding_scale)
        parts["encoder.positions"] = replace(parts["encoder.positions"], plus=row)
        named[TYPES] = types
    check_sources(parts, named, where, "tensors do not fit the architecture")
    return make_tensors(parts, named)


def _canonical_name(name: str) -> str | None:
    if name in OTHERS:
        return OTHERS[name]
    match = NAME.fullmatch(name)
    if match is None:
        return None
    stack, layer, number, part, end = match.groups()
    known = LAYER_PARTS if layer else STACK_PARTS
    if part not in known:
        return None
    scope = f"{stack}.layers.{int(number)}" if layer else stack
    return f"{scope}.{known[part]}.{ENDS[end]}"
