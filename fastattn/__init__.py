"""Attention models on the CPU: translation and sentence vectors, in Python compiled by Numba.

The public names are imported when first used, so that ``import fastattn`` itself costs nothing.
"""

import os
from importlib import import_module
from time import time_ns
from typing import TYPE_CHECKING, Any

from fastattn._version import VERSION as __version__

if TYPE_CHECKING:
    from fastattn import mechanisms
    from fastattn.array_attention.attention import attention, attention_ragged
    from fastattn.array_attention.block_mask import BlockMask
    from fastattn.array_attention.cache import KVCache
    from fastattn.array_attention.multi_head import MultiHeadAttention, ProjectionWeights, multi_head_attention
    from fastattn.decoding.options import DecodingOptions, Step
    from fastattn.encoders.cross_encoder import CrossEncoder
    from fastattn.encoders.encoder import Encoder
    from fastattn.encoders.masked_language_model import MaskedLanguageModel
    from fastattn.encoders.multi_vector_encoder import MultiVectorEncoder
    from fastattn.encoders.sparse_encoder import SparseEncoder
    from fastattn.encoders.text_classifier import TextClassifier
    from fastattn.encoders.token_classifier import TokenClassifier
    from fastattn.errors import FastattnError
    from fastattn.plot import AttentionPlot, plot_attention
    from fastattn.runtime.threads import set_threading, use_threads
    from fastattn.translation.results import ExecutionStats, Score, TokenTranslation, Translation
    from fastattn.translation.translator import Translator
    from fastattn.user_functions.combine import and_masks, or_masks
    from fastattn.user_functions.plan import explain_function
    from fastattn.vectors.quantized import quantize_vectors
    from fastattn.vectors.search import SearchResult, semantic_search
    from fastattn.vectors.sparse import SparseVectors

__all__ = [
    "AttentionPlot",
    "BlockMask",
    "CrossEncoder",
    "DecodingOptions",
    "Encoder",
    "ExecutionStats",
    "FastattnError",
    "KVCache",
    "MaskedLanguageModel",
    "MultiHeadAttention",
    "MultiVectorEncoder",
    "ProjectionWeights",
    "Score",
    "SearchResult",
    "SparseEncoder",
    "SparseVectors",
    "Step",
    "TextClassifier",
    "TokenClassifier",
    "TokenTranslation",
    "Translation",
    "Translator",
    "__version__",
    "and_masks",
    "attention",
    "attention_ragged",
    "explain_function",
    "mechanisms",
    "multi_head_attention",
    "or_masks",
    "plot_attention",
    "quantize_vectors",
    "semantic_search",
    "set_threading",
    "use_threads",
]

_HOMES = {
    "AttentionPlot": ("fastattn.plot", "AttentionPlot"),
    "BlockMask": ("fastattn.array_attention.block_mask", "BlockMask"),
    "CrossEncoder": ("fastattn.encoders.cross_encoder", "CrossEncoder"),
    "DecodingOptions": ("fastattn.decoding.options", "DecodingOptions"),
    "Encoder": ("fastattn.encoders.encoder", "Encoder"),
    "ExecutionStats": ("fastattn.translation.results", "ExecutionStats"),
    "FastattnError": ("fastattn.errors", "FastattnError"),
    "KVCache": ("fastattn.array_attention.cache", "KVCache"),
    "MaskedLanguageModel": ("fastattn.encoders.masked_language_model", "MaskedLanguageModel"),
    "MultiHeadAttention": ("fastattn.array_attention.multi_head", "MultiHeadAttention"),
    "MultiVectorEncoder": ("fastattn.encoders.multi_vector_encoder", "MultiVectorEncoder"),
    "ProjectionWeights": ("fastattn.array_attention.multi_head", "ProjectionWeights"),
    "Score": ("fastattn.translation.results", "Score"),
    "SearchResult": ("fastattn.vectors.search", "SearchResult"),
    "SparseEncoder": ("fastattn.encoders.sparse_encoder", "SparseEncoder"),
    "SparseVectors": ("fastattn.vectors.sparse", "SparseVectors"),
    "Step": ("fastattn.decoding.options", "Step"),
    "TextClassifier": ("fastattn.encoders.text_classifier", "TextClassifier"),
    "TokenClassifier": ("fastattn.encoders.token_classifier", "TokenClassifier"),
    "TokenTranslation": ("fastattn.translation.results", "TokenTranslation"),
    "Translation": ("fastattn.translation.results", "Translation"),
    "Translator": ("fastattn.translation.translator", "Translator"),
    "and_masks": ("fastattn.user_functions.combine", "and_masks"),
    "attention": ("fastattn.array_attention.attention", "attention"),
    "attention_ragged": ("fastattn.array_attention.attention", "attention_ragged"),
    "explain_function": ("fastattn.user_functions.plan", "explain_function"),
    "mechanisms": ("fastattn.mechanisms", ""),
    "multi_head_attention": ("fastattn.array_attention.multi_head", "multi_head_attention"),
    "or_masks": ("fastattn.user_functions.combine", "or_masks"),
    "plot_attention": ("fastattn.plot", "plot_attention"),
    "quantize_vectors": ("fastattn.vectors.quantized", "quantize_vectors"),
    "semantic_search": ("fastattn.vectors.search", "semantic_search"),
    "set_threading": ("fastattn.runtime.threads", "set_threading"),
    "use_threads": ("fastattn.runtime.threads", "use_threads"),
}

_imported_at = time_ns()  # before any other file of the package was read


def _find_rooms_of_a_clone(folder: str) -> None:
    """Find weights/ and cli/ in a clone, where they lie beside this folder: setup.py maps them into the package.

    A process that starts in the clone's root imports the clone's folder, not the installed package.
    """
    clone = os.path.dirname(folder)
    if not os.path.isdir(os.path.join(folder, "weights")) and os.path.isfile(os.path.join(clone, "setup.cfg")):
        __path__.append(clone)


_find_rooms_of_a_clone(os.path.dirname(os.path.abspath(__file__)))


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastattn' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    home = import_module(module)
    value = getattr(home, attribute) if attribute else home
    globals()[name] = value  # later uses find it there
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
