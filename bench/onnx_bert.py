"""A BERT encoder as an ONNX graph of the fused operators that ONNX Runtime's optimizer produces."""

from pathlib import Path

import numpy as np

from bench.onnx_kernels import MICROSOFT, Graph
from fastattn.weights import read


def bert_model(folder: Path) -> bytes:
    """The .onnx file; its inputs are ids [B, T] and lengths [B], int32, its output the last layer's rows [B, T, D].

    It uses attention over packed projections (com.microsoft.Attention), and gelu fused with its bias.
    """
    checkpoint = read(folder)
    spec, tensors = checkpoint.spec.encoder, checkpoint.tensors
    if (
        spec is None
        or (spec.norms.before, spec.norms.embedding) != (False, True)
        or (spec.feed_forward.activation, spec.positions.kind) != ("gelu", "table")
        or not spec.token_types
    ):
        raise ValueError(f"expected a BERT encoder, got {spec}")
    graph = Graph()
    ids, lengths = graph.input("ids", "int32", ["B", "T"]), graph.input("lengths", "int32", ["B"])

    def constant(values: list[int]) -> str:
        return graph.weight(np.array(values, np.int64))

    def norm(x: str, name: str) -> str:
        weights = [graph.weight(tensors[f"{name}.{part}"]) for part in ("weight", "bias")]
        return graph.add("LayerNormalization", x, *weights, epsilon=spec.norms.epsilon)

    def product(x: str, name: str) -> tuple[str, str]:
        """(x W', the bias, which the next operator adds)."""
        weight = graph.weight(tensors[f"{name}.weight"].T)
        return graph.add("MatMul", x, weight), graph.weight(tensors[f"{name}.bias"])

    def added(x: str, name: str) -> str:
        return graph.add("Add", *product(x, name))

    tokens = graph.add("Gather", graph.weight(tensors["encoder.embedding.weight"]), ids)
    length = graph.add("Shape", ids, start=1, end=2)
    places = graph.weight(tensors["encoder.positions"] + tensors["encoder.token_types"][0])  # one text is of type 0
    positions = graph.add("Slice", places, constant([0]), length, constant([0]))
    x = norm(graph.add("Add", tokens, positions), "encoder.embedding_norm")
    for i in range(spec.layers):
        layer = f"encoder.layers.{i}"
        qkv = [tensors[f"{layer}.self_attention.qkv.{part}"] for part in ("weight", "bias")]
        seen = graph.add(
            "Attention",
            x,
            *(graph.weight(array) for array in (qkv[0].T, qkv[1])),
            lengths,
            domain=MICROSOFT,
            num_heads=spec.attention.heads,
        )
        output = added(seen, f"{layer}.self_attention.output")
        x = norm(graph.add("Add", output, x), f"{layer}.self_attention.norm")
        inner = graph.add("BiasGelu", *product(x, f"{layer}.feed_forward.inner"), domain=MICROSOFT)
        outer = added(inner, f"{layer}.feed_forward.outer")
        x = norm(graph.add("Add", outer, x), f"{layer}.feed_forward.norm")
    return graph.model(x)
