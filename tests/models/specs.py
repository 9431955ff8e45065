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
from fastattn.weights.native.config import FIRST_NAMES

PARTS = {
    "attention": AttentionSpec,
    "feed_forward": FeedForwardSpec,
    "norms": NormSpec,
    "positions": PositionSpec,
    "recurrence": RecurrenceSpec,
    "alignment": AlignmentSpec,
}
# Keyword -> (the part, its field): what they were called when a stack was flat, and what has come since.
KEYWORDS = FIRST_NAMES | {
    "head_norms": ("attention", "head_norms"),
    "first_norm": ("norms", "first"),
    "output_norms": ("norms", "output"),
    "learned_positions": ("positions", "learned"),
    "disentangled": ("positions", "disentangled"),
    "recurrence": ("recurrence", "kind"),
}


def stack_spec(**keywords: Any) -> StackSpec:
    parts: dict[str, dict[str, Any]] = {}
    for keyword in [keyword for keyword in keywords if keyword in KEYWORDS]:
        part, field = KEYWORDS[keyword]
        parts.setdefault(part, {})[field] = keywords.pop(keyword)
    return StackSpec(**{part: PARTS[part](**fields) for part, fields in parts.items()}, **keywords)
