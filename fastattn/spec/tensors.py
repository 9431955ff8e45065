"""The tensors that a checkpoint of an architecture must have, and checks of a checkpoint's tensors.

All tensors are float32 (a matrix may be a QuantizedTensor or Int4Tensor), weights are [outputs, inputs]. The canonical
name of a stack's tensor begins with ``encoder.``, ``decoder.`` or ``images.``. The kind "attention" has::

    embedding.weight                       [V, E]   E: embedding_width, or D; vocabulary > 0
    positions                              [P, E]   positions "table", or "relative" or "disentangled" if learned too;
                                                    the first row is positions.padding's, if there is one
    token_types                            [U, E]   token_types > 0
    relative_bias                          [buckets, H]   positions "relative"; if of_each_layer, in self_attention
    distances                              [2 buckets, D]   positions "disentangled"; or 2 max_distance rows
    distance_norm.*                        [D]   positions "disentangled", disentangled.norm
    embedding_norm.{weight,bias}           [E]   [D] if norm_after_projection
    embedding_projection.*                 [D, E]   embedding_width > 0
    convolution.*                          [D, C D]   convolution of width C; columns: rows before, between, after
    convolution_norm.*                     [D]
    layers.N.self_attention.norm.*         [D]   norms.input; not in layer 0 if norms.first is False
    layers.N.self_attention.qkv.*          [(H + 2 G) K, D]   rows: queries, keys, values
    layers.N.self_attention.distances.*    [H K, D]   disentangled, not shared: queries or keys; [2 H K, D]: both
    layers.N.self_attention.query_norm.weight, .key_norm.weight   [K]   attention.head_norms; [H K] and [G K] if
                                                    norms_of_all_heads
    layers.N.self_attention.output.*       [D, H K]
    layers.N.self_attention.output_norm.*  [D]   norms.output; likewise of feed_forward
    layers.N.ssru.norm.*                   [D]   recurrence "ssru", in place of self_attention
    layers.N.ssru.input.*                  [2 D, D]   rows: cell inputs, forget gates
    layers.N.average_attention.norm.*      [D]   recurrence "average-attention", in place of self_attention
    layers.N.average_attention.inner.*     [A, D]   recurrence.inner_width > 0
    layers.N.average_attention.outer.*     [D, A]   recurrence.inner_width > 0
    layers.N.average_attention.input_gate.*, .forget_gate.*   [D, D]   recurrence.gates
    layers.N.cross_attention.norm.*, .query.*, .key_value.*, .output.*
    layers.N.feed_forward.norm.*           [D]   norms.input
    layers.N.feed_forward.inner.*          [F, D]   the activated product
    layers.N.feed_forward.inner_linear.*   [F, D]   gated only: multiplies the activated product
    layers.N.feed_forward.outer.*          [D, F]
    final_norm.*                           [D]

The kind "patches" has the tensors of "attention", but positions [1 + P, D] and, in place of an embedding::

    patches.*                              [D, C height width]

The kind "convolutional", whose weights have a window's taps in turn, each with its channels side by side, has::

    stem.*                                 [W, taps C]
    layers.N.1.*, .2.*, .3.*               convolutions of a block, with folded batch norms
    layers.N.shortcut.*                    [outputs, inputs]   where a block changes the width or the grid
    layers.N.gate.fc1.*, .fc2.*            gate "squeeze-excitation" or "cbam"
    layers.N.gate.spatial.*                [1, 98]   gate "cbam"

The kind "recurrent", with H units of G gates (``spec.recurrent``), has::

    embedding.weight                       [V, E]   vocabulary > 0, unless the decoder points
    layers.N.input.*                       [directions G H, inputs]   inputs: embedding or rows below, fed rows, context
    layers.N.state.*                       [G H, H]
    layers.N.backward.*                    [G H, H]   bidirectional: ``state`` of the backward direction
    attention.query.*, .key.*              [A, H], [A, memory]   additive and multi-head; general has a key, A = H
    attention.value.*, .output.*           [A, memory], [A, A]   multi-head
    attention.score.weight                 [1, A]   additive
    attention.position.*, .position_score.weight   [P, H], [1, P]   predictive
    bridge.*                               [states, memory_states]   initial "bridge"
    readout.*                              [D, parts]   readout.width > 0

A decoder of any kind also has a projection, and an encoder perhaps a head::

    decoder.projection.*                   [V, D]
    head.inner.*                           [I, D]   head.inner_width > 0
    head.norm.*                            [I]   head.norm
    head.output.*                          [outputs, I or D]
"""

from collections.abc import Callable, Mapping
from typing import Any

from fastattn.errors import CheckpointError
from fastattn.printable import first_of
from fastattn.spec.architecture import (
    Disentangled,
    HeadSpec,
    ModelSpec,
    NormSpec,
    RecurrenceSpec,
    StackSpec,
    check_known,
)
from fastattn.spec.images import PatchSpec, ResidualSpec
from fastattn.spec.quantized import Tensor
from fastattn.spec.recurrent import MemoryAttention, RecurrentSpec

Shapes = dict[str, tuple[int, ...]]


def _linear(shapes: Shapes, name: str, outputs: int, inputs: int, bias: bool) -> None:
    shapes[name + ".weight"] = (outputs, inputs)
    if bias:
        shapes[name + ".bias"] = (outputs,)


def _norm(shapes: Shapes, name: str, norms: NormSpec, width: int) -> None:
    for part in ("weight", "bias")[: 1 + (norms.kind == "layer" and norms.biases)]:
        shapes[f"{name}.{part}"] = (width,)


def _self_attention(shapes: Shapes, layer: str, spec: StackSpec) -> None:
    name, queries, keys = f"{layer}.self_attention", spec.attention.query_width, spec.attention.key_width
    if spec.norms.input and (spec.norms.first or not layer == "layers.0"):
        _norm(shapes, f"{name}.norm", spec.norms, spec.width)
    _linear(shapes, f"{name}.qkv", queries + 2 * keys, spec.width, spec.biases)
    if spec.positions.of_each_layer:
        shapes[f"{name}.relative_bias"] = (spec.positions.buckets, spec.attention.heads)
    if spec.positions.kind == "disentangled":
        terms = spec.positions.disentangled or Disentangled()
        if not terms.shared:
            outputs = (terms.to_position + terms.to_content) * keys
            _linear(shapes, f"{name}.distances", outputs, spec.width, spec.biases)
    if spec.attention.head_norms:
        all_heads, width = spec.attention.norms_of_all_heads, spec.attention.head_width
        shapes[f"{name}.query_norm.weight"] = (queries if all_heads else width,)
        shapes[f"{name}.key_norm.weight"] = (keys if all_heads else width,)
    _linear(shapes, f"{name}.output", spec.width, queries, spec.biases)
    if spec.norms.output:
        _norm(shapes, f"{name}.output_norm", spec.norms, spec.width)


def _cross_attention(shapes: Shapes, layer: str, spec: StackSpec) -> None:
    name, queries, keys = f"{layer}.cross_attention", spec.attention.query_width, spec.attention.key_width
    _norm(shapes, f"{name}.norm", spec.norms, spec.width)
    _linear(shapes, f"{name}.query", queries, spec.width, spec.biases)
    _linear(shapes, f"{name}.key_value", 2 * keys, spec.width, spec.biases)
    _linear(shapes, f"{name}.output", spec.width, queries, spec.biases)


def _feed_forward(shapes: Shapes, layer: str, spec: StackSpec) -> None:
    name, inner = f"{layer}.feed_forward", spec.feed_forward.inner_width
    if spec.norms.input:
        _norm(shapes, f"{name}.norm", spec.norms, spec.width)
    _linear(shapes, f"{name}.inner", inner, spec.width, spec.biases)
    if spec.feed_forward.gated:
        _linear(shapes, f"{name}.inner_linear", inner, spec.width, spec.biases)
    _linear(shapes, f"{name}.outer", spec.width, inner, spec.biases)
    if spec.norms.output:
        _norm(shapes, f"{name}.output_norm", spec.norms, spec.width)


def _recurrence(shapes: Shapes, layer: str, spec: StackSpec, recurrence: RecurrenceSpec) -> None:
    name = f"{layer}.{recurrence.kind.replace('-', '_')}"
    _norm(shapes, f"{name}.norm", spec.norms, spec.width)
    if recurrence.kind == "ssru":
        _linear(shapes, f"{name}.input", 2 * spec.width, spec.width, spec.biases)
        return
    if recurrence.inner_width:
        _linear(shapes, f"{name}.inner", recurrence.inner_width, spec.width, spec.biases)
        _linear(shapes, f"{name}.outer", spec.width, recurrence.inner_width, spec.biases)
    for gate in ("input_gate", "forget_gate") if recurrence.gates else ():
        _linear(shapes, f"{name}.{gate}", spec.width, spec.width, spec.biases)


def _attention_stack(spec: StackSpec) -> Shapes:
    width = spec.embedding_width or spec.width
    shapes: Shapes = {"embedding.weight": (spec.vocabulary, width)} if spec.vocabulary else {}
    if spec.positions.has_table:
        shapes["positions"] = (spec.positions.table_rows, width)
    if spec.token_types:
        shapes["token_types"] = (spec.token_types, width)
    if spec.positions.kind == "relative" and not spec.positions.of_each_layer:
        shapes["relative_bias"] = (spec.positions.buckets, spec.attention.heads)
    if spec.positions.kind == "disentangled":
        shapes["distances"] = (spec.positions.distance_rows, spec.width)
        if (spec.positions.disentangled or Disentangled()).norm:
            _norm(shapes, "distance_norm", spec.norms, spec.width)
    if spec.norms.embedding:
        _norm(shapes, "embedding_norm", spec.norms, spec.width if spec.norm_after_projection else width)
    if spec.embedding_width:
        bias = spec.biases and not spec.norm_after_projection
        _linear(shapes, "embedding_projection", spec.width, width, bias)
    if spec.convolution is not None:
        _linear(shapes, "convolution", spec.width, spec.convolution.width * spec.width, spec.biases)
        _norm(shapes, "convolution_norm", spec.norms, spec.width)
    for i in range(spec.layers):
        layer = f"layers.{i}"
        if spec.recurrence is None:
            _self_attention(shapes, layer, spec)
        else:
            _recurrence(shapes, layer, spec, spec.recurrence)
        if spec.cross_attention:
            _cross_attention(shapes, layer, spec)
        _feed_forward(shapes, layer, spec)
    if spec.norms.final:
        _norm(shapes, "final_norm", spec.norms, spec.width)
    return shapes


def _memory_attention(shapes: Shapes, spec: RecurrentSpec, attention: MemoryAttention) -> None:
    width = attention.width or spec.units
    if attention.projects_query:
        _linear(shapes, "attention.query", width, spec.units, True)
    if attention.score != "dot":
        _linear(shapes, "attention.key", width, spec.memory, True)
    if attention.score == "multi-head":
        _linear(shapes, "attention.value", width, spec.memory, True)
        _linear(shapes, "attention.output", width, width, True)
    if attention.score == "additive":
        _linear(shapes, "attention.score", 1, width, False)
    if attention.predictive:
        _linear(shapes, "attention.position", attention.predictive, spec.units, True)
        _linear(shapes, "attention.position_score", 1, attention.predictive, False)


def _recurrent_stack(spec: RecurrentSpec) -> Shapes:
    has_table = spec.vocabulary and not spec.points
    shapes: Shapes = {"embedding.weight": (spec.vocabulary, spec.embedding_width)} if has_table else {}
    rows = spec.gates * spec.units
    for i in range(spec.layers):
        _linear(shapes, f"layers.{i}.input", spec.directions * rows, spec.inputs(i), True)
        for name in ("state", "backward")[: spec.directions]:
            _linear(shapes, f"layers.{i}.{name}", rows, spec.units, True)
    if spec.attention is not None:
        _memory_attention(shapes, spec, spec.attention)
    if spec.initial == "bridge":
        _linear(shapes, "bridge", spec.states, spec.memory_states, True)
    if spec.readout.width:
        _linear(shapes, "readout", spec.readout.width, spec.readout_inputs, True)
    return shapes


def _patch_stack(spec: PatchSpec) -> Shapes:
    shapes = _attention_stack(spec.blocks)
    _linear(shapes, "patches", spec.width, spec.patch_values, True)
    return shapes


def _residual_stack(spec: ResidualSpec) -> Shapes:
    shapes: Shapes = {}
    _linear(shapes, "stem", spec.stem, spec.stem_size**2 * spec.image[0], True)
    for i, block in enumerate(spec.block_sizes):
        layer, width = f"layers.{i}", block.width
        if spec.expansion == 1:
            _linear(shapes, f"{layer}.1", width, 9 * block.inputs, True)
            _linear(shapes, f"{layer}.2", width, 9 * width, True)
        else:
            _linear(shapes, f"{layer}.1", width, block.inputs, True)
            _linear(shapes, f"{layer}.2", width, 9 * width // spec.groups, True)
            _linear(shapes, f"{layer}.3", block.outputs, width, True)
        if block.has_shortcut:
            _linear(shapes, f"{layer}.shortcut", block.outputs, block.inputs, True)
        if spec.gate != "none":
            _linear(shapes, f"{layer}.gate.fc1", block.gate_width, block.outputs, True)
            _linear(shapes, f"{layer}.gate.fc2", block.outputs, block.gate_width, True)
        if spec.gate == "cbam":
            _linear(shapes, f"{layer}.gate.spatial", 1, 2 * 49, True)
    return shapes


# Kind of stack -> the shapes of its tensors, from its spec, by their names within the stack.
STACKS: dict[str, Callable[[Any], Shapes]] = {
    "attention": _attention_stack,
    "convolutional": _residual_stack,
    "patches": _patch_stack,
    "recurrent": _recurrent_stack,
}


def head_shapes(head: HeadSpec, width: int) -> Shapes:
    """Canonical name -> shape of a head's tensors, after hidden states of ``width``."""
    shapes: Shapes = {}
    if head.inner_width:
        _linear(shapes, "head.inner", head.inner_width, width, head.inner_bias)
    if head.norm is not None:
        _norm(shapes, "head.norm", head.norm, head.inner_width)
    _linear(shapes, "head.output", head.outputs, head.inner_width or width, head.bias)
    return shapes


def tensor_shapes(spec: ModelSpec) -> Shapes:
    """Canonical name -> shape of every tensor that a checkpoint of this spec must hold."""
    shapes: Shapes = {}
    for name, stack in spec.stacks.items():
        check_known("kind of stack", stack.kind, STACKS)
        shapes |= {f"{name}.{tensor}": shape for tensor, shape in STACKS[stack.kind](stack).items()}
    if spec.decoder is not None:
        _linear(shapes, "decoder.projection", spec.decoder.vocabulary, spec.decoder.width, spec.decoder.projection_bias)
    if spec.head is not None and spec.encoder is not None:
        shapes |= head_shapes(spec.head, spec.encoder.width)
    return shapes


def find_misfits(expected: Mapping[str, tuple[int, ...]], tensors: Mapping[str, Any]) -> list[str]:
    """Messages about tensors (objects with a shape) that are missing, unexpected or misshapen: the first of each."""
    missing = [f"missing {name} {list(shape)}" for name, shape in expected.items() if name not in tensors]
    unexpected = [f"unexpected {name} {list(tensors[name].shape)}" for name in tensors if name not in expected]
    misshapen = [
        f"{name} should be {list(shape)}, is {list(tensors[name].shape)}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    kinds = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen}
    return [message for kind, messages in kinds.items() for message in first_of(messages, kind)]


def check_tensors(spec: ModelSpec, tensors: Mapping[str, Tensor], source: str) -> None:
    """Raise one CheckpointError that lists tensors that are missing, unexpected, misshapen or tables with factors."""
    expected = tensor_shapes(spec)
    problems = find_misfits(expected, tensors)
    problems += [
        f"{name} is a table, which has no inputs and no factors for them"
        for name in expected
        if name.endswith("embedding.weight") and getattr(tensors.get(name), "input_factors_D", None) is not None
    ]
    if problems:
        raise CheckpointError(f"{source}: tensors do not fit the architecture: " + "; ".join(problems))
