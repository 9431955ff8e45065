"""StackSpecs of flat keywords, for tests that change one field of one part."""

from typing import Any

from fastattn.spec.architecture import (
    AlignmentSpec,
    AttentionSpec,
    FeedForwardSpec,
    NormSpec,
    PositionSpec,
    RecurrenceSpec,
    StackSpec,
)

# Part -> its class, and keyword -> field.
PARTS: dict[str, tuple[type, dict[str, str]]] = {
    "attention": (
        AttentionSpec,
        {name: name for name in ("heads", "key_heads", "head_width", "query_scale", "head_norms")},
    ),
    "feed_forward": (FeedForwardSpec, {name: name for name in ("inner_width", "activation", "gated")}),
    "norms": (
        NormSpec,
        {
            "norm": "kind",
            "norm_epsilon": "epsilon",
            "norm_biases": "biases",
            "pre_norm": "before",
            "final_norm": "final",
            "embedding_norm": "embedding",
            "first_norm": "first",
            "output_norms": "output",
        },
    ),
    "positions": (
        PositionSpec,
        {
            "positions": "kind",
            "max_positions": "limit",
            "sinusoid_start": "start",
            "rotary": "rotary",
            "alibi": "alibi",
            "relative_buckets": "buckets",
            "relative_max_distance": "max_distance",
            "learned_positions": "learned",
            "disentangled": "disentangled",
        },
    ),
    "recurrence": (
        RecurrenceSpec,
        {
            "recurrence": "kind",
            "average_inner_width": "inner_width",
            "average_activation": "activation",
            "average_gates": "gates",
        },
    ),
    "alignment": (AlignmentSpec, {"alignment_layer": "layer", "alignment_heads": "heads"}),
}


def stack_spec(**keywords: Any) -> StackSpec:
    parts: dict[str, Any] = {}
    for part, (kind, fields) in PARTS.items():
        given = {field: keywords.pop(keyword) for keyword, field in fields.items() if keyword in keywords}
        if given:
            parts[part] = kind(**given)
    return StackSpec(**parts, **keywords)
