"""A CTranslate2 model's attributes as a StackSpec, the features that no StackSpec can express, the model's tensors."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import (
    Alibi,
    AlignmentSpec,
    AttentionSpec,
    FeedForwardSpec,
    ModelSpec,
    NormSpec,
    PositionSpec,
    Rotary,
    StackSpec,
)
from fastattn.spec.quantized import Tensor
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.ctranslate2.file import Variable
from fastattn.weights.tensor_mapping import FirstRow, canonical_sources, check_sources, make_tensors, zeros

ACTIVATIONS = dict(enumerate(("relu", "gelu_tanh", "swish", "gelu", "gelu_sigmoid", "tanh", "sigmoid")))
_NORMS = "norms before and after each block"
# A part of variables' names -> the unsupported feature that it shows.
UNSUPPORTED = {
    **dict.fromkeys(("relative_position_keys", "relative_position_values"), "relative position representations"),
    "relative_asymmetric_position_keys": "asymmetric relative positions",
    **dict.fromkeys(("rotary_scaling_long_factor", "rotary_scaling_short_factor"), "su rotary scaling"),
    "weight_zero": "4-bit weights (weight_zero)",
    **dict.fromkeys(("q_norm", "k_norm"), "norms of queries and keys (qk_norm)"),
    "v_norm": "norms of values (v_norm)",
    "shared_layer_norm": "parallel residual connections",
    **dict.fromkeys(("input_layer_norm", "post_attention_layer_norm"), f"parallel residual connections or {_NORMS}"),
    **dict.fromkeys(("pre_feedforward_layer_norm", "post_feedforward_layer_norm"), _NORMS),
    "external_pre_encoder_attention_layer_norm": "norms around the cross-attention",
    "external_post_encoder_attention_layer_norm": "norms around the cross-attention",
    "memory_kv": "self-attention merged with cross-attention",
    "project_in": "a projection after the embedding (project_in)",
    "project_out": "a projection before the output (project_out)",
}
# Attribute -> (its harmless value, the unsupported feature that another value shows).
UNSUPPORTED_VALUES = {
    "sliding_window": (0, "sliding window attention"),
    "final_logit_softcapping": (0, "final_logit_softcapping"),
    "layer_scalar": (1, "layer_scalar"),
    "merged_encoder_attention": (0, "self-attention merged with cross-attention"),
}


class Attributes:
    """The variables of a model. A variable of one value is read as an attribute, which has a default."""

    # Every attribute that is read, or has no effect.
    NAMES = frozenset(
        "num_heads pre_norm activation embeddings_merge alignment_layer alignment_heads scale_embeddings "
        "multiply_by_sqrt_depth scale_outputs start_from_zero_embedding alibi alibi_use_positive_positions scale_alibi "
        "num_heads_kv head_dim multi_query multi_query_attention queries_scale rotary_dim rotary_interleave "
        "rotary_base rotary_scaling_type rotary_scaling_factor rotary_low_freq_factor rotary_high_freq_factor "
        "original_max_position_embeddings max_position_embeddings layer_norm_use_residual sliding_window "
        "final_logit_softcapping layer_scalar merged_encoder_attention unk_token bos_token eos_token with_source_bos "
        "with_source_eos with_target_bos user_decoder_start_tokens".split()
    )

    def __init__(self, variables: dict[str, Variable], where: str) -> None:
        self.variables = variables
        self.where = where

    def number(self, name: str, default: float) -> float:
        variable = self.variables.get(name)
        value = default if variable is None else variable.scalar()
        if not math.isfinite(value):
            raise CheckpointError(f"{name} should be a finite number, is {value}")
        return value

    def integer(self, name: str, default: int) -> int:
        return int(self.number(name, default))

    def flag(self, name: str, default: bool) -> bool:
        return bool(self.integer(name, default))

    def text(self, name: str, default: str) -> str:
        """A string, which is stored as an array of bytes."""
        variable = self.variables.get(name)
        if variable is None:
            return default
        try:
            if variable.dtype == "int8" and len(variable.shape) <= 1:
                return variable.array.tobytes().decode()
        except UnicodeDecodeError:
            pass
        raise CheckpointError(
            f"{self.where}: {name} should be UTF-8 text, is {shorten(variable.array.ravel()[:40].tolist())}"
        )

    def shape(self, name: str, rank: int) -> tuple[int, ...]:
        """The shape of a variable, which has no default and should have ``rank`` dimensions."""
        variable = self.variables.get(name)
        if variable is None:
            raise CheckpointError(f"variable {name} is missing")
        if len(variable.shape) != rank:
            raise CheckpointError(f"variable {name} should have {rank} dimensions, has {list(variable.shape)}")
        return variable.shape


def find_unsupported(attributes: Attributes) -> list[str]:
    """The unsupported features that the model's variables show, by their names in error messages."""
    problems = []
    for name, variable in attributes.variables.items():
        parts = name.split("/")
        problems += [UNSUPPORTED[part] for part in parts if part in UNSUPPORTED]
        if parts[-1] in UNSUPPORTED_VALUES:
            harmless, meaning = UNSUPPORTED_VALUES[parts[-1]]
            if variable.shape or variable.scalar() != harmless:
                problems.append(meaning)
    return problems


def read_stack(attributes: Attributes, prefix: str, epsilon: float | None, problems: list[str]) -> StackSpec:
    """The StackSpec of the stack ``prefix``; unsupported features are added to ``problems``."""
    variables = attributes.variables
    names = [name for name in variables if name.startswith(prefix + "/")]
    # Distinct layer numbers are counted: in a bad file the highest could be huge. Gaps are reported as missing tensors.
    layers = len({match[1] for name in names if (match := re.match(rf"{prefix}/layer_(\d+)/", name))})
    embeddings = f"{prefix}/embeddings" + ("" if f"{prefix}/embeddings/weight" in variables else "_0")
    vocabulary, width = attributes.shape(embeddings + "/weight", 2)
    heads = attributes.integer(f"{prefix}/num_heads", 8)
    if heads < 1:
        raise CheckpointError(f"{prefix}/num_heads should be at least 1, is {heads}")
    self_attentions = [f"{prefix}/layer_{i}/self_attention" for i in range(layers)]
    attentions = self_attentions + [f"{prefix}/layer_{i}/attention" for i in range(layers) if prefix == "decoder"]
    if any(attributes.flag(f"{attention}/multi_query", False) for attention in attentions):
        _common_value(attributes, attentions, "multi_query", 0, problems)
        key_heads = 1
    else:
        key_heads = int(_common_value(attributes, attentions, "num_heads_kv", heads, problems))
    qkv, default_width = variables.get(f"{prefix}/layer_0/self_attention/linear_0/weight"), width // heads
    if qkv is not None and len(qkv.shape) == 2:  # T5's heads together may be wider or narrower than a row
        default_width = qkv.shape[0] // max(1, heads + 2 * key_heads)
    head_width = int(_common_value(attributes, attentions, "head_dim", default_width, problems))
    if not 1 <= head_width <= width:
        raise CheckpointError(f"{prefix}: {heads} heads of width {head_width} do not fit a model of width {width}")
    norm = "layer" if any(name.endswith("/beta") for name in names) else "rms"
    activation = attributes.integer(f"{prefix}/activation", 0)
    if activation not in ACTIVATIONS:
        raise CheckpointError(f"{prefix}/activation should be one of {sorted(ACTIVATIONS)}, is {activation}")
    query_scale = _common_value(attributes, attentions, "queries_scale", head_width**-0.5, problems)
    has_default_scale = np.float32(query_scale) == np.float32(head_width**-0.5)
    positions = _read_positions(attributes, prefix, self_attentions, attentions, head_width, problems)
    if positions.alibi is not None and positions.alibi.scaled and not has_default_scale:
        problems.append("scale_alibi with a queries_scale of its own")
    return StackSpec(
        layers=layers,
        width=width,
        vocabulary=vocabulary,
        attention=AttentionSpec(heads, key_heads, head_width, None if has_default_scale else query_scale),
        feed_forward=FeedForwardSpec(
            inner_width=attributes.shape(f"{prefix}/layer_0/ffn/linear_0/weight", 2)[0],
            activation=ACTIVATIONS[activation],
            gated=any("/ffn/linear_0_noact/" in name for name in names),
        ),
        norms=NormSpec(
            norm,
            epsilon if epsilon is not None else (1e-5 if norm == "layer" else 1e-6),
            before=attributes.flag(f"{prefix}/pre_norm", True),
            final=f"{prefix}/layer_norm/gamma" in variables,
            embedding=f"{prefix}/layernorm_embedding/gamma" in variables,
        ),
        positions=positions,
        embedding_scale=_read_embedding_scale(attributes, prefix, width),
        biases=any(re.search(r"/linear_\d(_noact)?/bias$", name) for name in names),
        start_from_zero_embedding=attributes.flag(f"{prefix}/start_from_zero_embedding", False),
        cross_attention=prefix == "decoder",
        projection_bias=f"{prefix}/projection/bias" in variables,
        output_scale=attributes.number(f"{prefix}/scale_outputs", 1.0),
        alignment=_read_alignment(attributes, prefix, layers, heads),
    )


def _common_value(
    attributes: Attributes, attentions: list[str], name: str, default: float, problems: list[str]
) -> float:
    """The value of an attribute that each of ``attentions`` stores; values that differ are added to ``problems``."""
    values = {attributes.number(f"{attention}/{name}", default) for attention in attentions} or {default}
    if len(values) > 1:
        problems.append(f"{name} that differs between layers ({', '.join(map(str, sorted(values)))})")
    return max(values)


def _read_embedding_scale(attributes: Attributes, prefix: str, width: int) -> float:
    """The scale of embeddings: stored as a number, or as a flag (int8) for sqrt(width); sqrt(width) by default."""
    square_root = float(np.float32(math.sqrt(width)))
    for name in (f"{prefix}/scale_embeddings", f"{prefix}/embeddings/multiply_by_sqrt_depth"):
        variable = attributes.variables.get(name)
        if variable is not None:
            value = attributes.number(name, 1.0)
            return float(value) if variable.dtype != "int8" else square_root if value else 1.0
    return square_root


def _read_alignment(attributes: Attributes, prefix: str, layers: int, heads: int) -> AlignmentSpec:
    layer = attributes.integer(f"{prefix}/alignment_layer", -1)
    averaged_heads = attributes.integer(f"{prefix}/alignment_heads", 1)
    if layers and not (-layers <= layer < layers and 0 <= averaged_heads <= heads):
        raise CheckpointError(
            f"{prefix}/alignment_layer {layer} and alignment_heads {averaged_heads} do not fit {layers} layers, "
            f"{heads} heads"
        )
    return AlignmentSpec(layer, averaged_heads)


def _read_positions(
    attributes: Attributes,
    prefix: str,
    self_attentions: list[str],
    attentions: list[str],
    head_width: int,
    problems: list[str],
) -> PositionSpec:
    """The positions of a stack. Layers may differ in relative biases; other differences are added to ``problems``."""
    positions = PositionSpec("sinusoid")
    for name in ("rotary_dim", "relative_attention_bias"):
        holders = {attention for attention in attentions if f"{attention}/{name}" in attributes.variables}
        if holders and holders != set(self_attentions):
            problems.append(f"{name} that is not the same in every self-attention layer, and only there")
    table = f"{prefix}/position_encodings/encodings"
    if attributes.flag(f"{prefix}/alibi", False):
        alibi = Alibi(
            positive_positions=attributes.flag(f"{prefix}/alibi_use_positive_positions", True),
            scaled=attributes.flag(f"{prefix}/scale_alibi", False),
        )
        positions = PositionSpec("alibi", alibi=alibi)
    if any(f"{attention}/rotary_dim" in attributes.variables for attention in self_attentions):
        if positions.alibi is not None:
            problems.append("rotary positions together with alibi")
        positions = PositionSpec("rotary", rotary=_read_rotary(attributes, self_attentions, head_width, problems))
    elif any(f"{attention}/relative_attention_bias" in attributes.variables for attention in self_attentions):
        if positions.alibi is not None:
            problems.append("relative attention biases together with alibi")
        positions = _read_relative(attributes, self_attentions, problems)
    elif positions.alibi is None and table in attributes.variables:
        positions = PositionSpec("table", limit=attributes.shape(table, 2)[0])
    return positions


def _read_rotary(attributes: Attributes, attentions: list[str], head_width: int, problems: list[str]) -> Rotary:
    def value(name: str, default: float) -> float:
        return _common_value(attributes, attentions, name, default, problems)

    scaling = value("rotary_scaling_type", -1)
    if scaling not in (-1, 0):
        unsupported_types = {1: "su rotary scaling", 2: "llama3 rotary scaling"}
        problems.append(unsupported_types.get(int(scaling), "unknown rotary scaling"))
    limit, trained_limit = value("max_position_embeddings", 0), value("original_max_position_embeddings", 0)
    if trained_limit and limit // trained_limit > 1:
        problems.append("rotary positions scaled by max_position_embeddings")
    width, base = int(value("rotary_dim", 0)) or head_width, value("rotary_base", 10000.0)
    scale = value("rotary_scaling_factor", 1.0) if scaling == 0 else 1.0
    if width % 2 or not 2 <= width <= head_width or base <= 0 or scale <= 0:
        raise CheckpointError(
            f"rotary positions should be on an even number of a head's {head_width} dimensions with base and scale"
            f" above zero, are on {width} with base {base} and scale {scale}"
        )
    return Rotary(width, base, bool(value("rotary_interleave", 1)), scale)


def _read_relative(attributes: Attributes, attentions: list[str], problems: list[str]) -> PositionSpec:
    tables = (attributes.variables.get(f"{attention}/relative_attention_bias") for attention in attentions)
    first_table, *later_tables = {id(table): table.float32 for table in tables if table is not None}.values()
    of_each_layer = not all(np.array_equal(table, first_table) for table in later_tables)
    buckets = attributes.shape(f"{attentions[0]}/relative_attention_bias", 2)[0]
    distance = int(_common_value(attributes, attentions, "relative_attention_max_distance", 0, problems))
    if buckets < 4 or distance <= buckets // 2:
        raise CheckpointError(
            f"relative_attention_bias should have at least 4 buckets and relative_attention_max_distance exceed half of"
            f" them, they are {buckets} and {distance}"
        )
    return PositionSpec("relative", buckets=buckets, max_distance=distance, of_each_layer=of_each_layer)


# The pattern of a tensor's name; then the canonical name of each last part, and of what precedes it.
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
POSITIONS = {f"{stack}/position_encodings/encodings": f"{stack}.positions" for stack in ("encoder", "decoder")}
TOKEN_TYPES = "encoder/embeddings_1/weight"
ADDS_ONE = "layer_norm_use_residual"  # beside a norm's gamma: the norm multiplies by 1 + gamma
# Last parts of the names of variables that are attributes, or that belong to another variable.
NO_TENSORS = Attributes.NAMES | {"weight_scale", "relative_attention_bias", "relative_attention_max_distance"}


def read_tensors(variables: Mapping[str, Variable], spec: ModelSpec, where: str) -> dict[str, Tensor]:
    """The canonical tensors; one CheckpointError lists all that are missing, left over or misshapen."""
    by_name = {}  # canonical name -> variable; a variable without a canonical name keeps its own, to be reported
    for name, variable in variables.items():
        canonical = _canonical_name(name)
        # The pooler is ignored: an encoder's output does not need it.
        is_no_tensor = name.rpartition("/")[2] in NO_TENSORS or name.startswith("pooler_") or name == TOKEN_TYPES
        if canonical is not None or not is_no_tensor:
            by_name[canonical or name] = variable
    for stack, stack_spec in spec.stacks.items():
        of_each_layer = stack_spec.positions.of_each_layer  # if False, all layers use the first layer's table, as in T5
        for i in range((stack_spec.layers if of_each_layer else 1) if stack_spec.positions.kind == "relative" else 0):
            scope = f"{stack}.layers.{i}.self_attention" if of_each_layer else stack
            by_name[f"{scope}.relative_bias"] = variables[f"{stack}/layer_{i}/self_attention/relative_attention_bias"]
    mapping = canonical_sources(spec)
    for name, entry in mapping.items():
        # A missing bias is zeros: a StackSpec has one flag for the biases of all linear layers.
        if name.endswith(".bias") and ".layers." in name and not name.endswith(".norm.bias"):
            mapping[name] = replace(entry, default=zeros)
    for name in variables:
        flag = variables.get(name.removesuffix("gamma") + ADDS_ONE) if name.endswith("/gamma") else None
        if flag is not None and flag.scalar() and (norm := _canonical_name(name)) in mapping:
            mapping[norm] = replace(mapping[norm], offset=1.0)
    token_types = variables.get(TOKEN_TYPES)
    if token_types is not None and token_types.shape[0]:  # all tokens are of type 0: its row is added to the positions
        row = FirstRow(TOKEN_TYPES, token_types.shape[0], spec.stacks["encoder"].embedding_scale)
        mapping["encoder.positions"] = replace(mapping["encoder.positions"], added_row=row)
        by_name[TOKEN_TYPES] = token_types
    check_sources(mapping, by_name, where, "tensors do not fit the architecture")
    return make_tensors(mapping, by_name)


def _canonical_name(name: str) -> str | None:
    if name in POSITIONS:
        return POSITIONS[name]
    match = NAME.fullmatch(name)
    if match is None:
        return None
    stack, layer, number, stored_part, end = match.groups()
    part = (LAYER_PARTS if layer else STACK_PARTS).get(stored_part)
    scope = f"{stack}.layers.{int(number)}" if layer else stack
    return f"{scope}.{part}.{ENDS[end]}" if part else None
