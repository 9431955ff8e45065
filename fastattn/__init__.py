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
    from fastattn.cross_encoder import CrossEncoder
    from fastattn.decoding.options import DecodingOptions, Step
    from fastattn.encoder import Encoder
    from fastattn.errors import FastattnError
    from fastattn.functional.attention import attention, attention_ragged
    from fastattn.functional.block_mask import BlockMask
    from fastattn.functional.cache import KVCache
    from fastattn.functional.multi_head import MultiHeadAttention, ProjectionWeights, multi_head_attention
    from fastattn.functions.combine import and_masks, or_masks
    from fastattn.functions.plan import explain_function
    from fastattn.masked_language_model import MaskedLanguageModel
    from fastattn.multi_vector_encoder import MultiVectorEncoder
    from fastattn.plot import AttentionPlot, plot_attention
    from fastattn.quantized_vectors import quantize_vectors
    from fastattn.results import ExecutionStats, Score, TokenTranslation, Translation
    from fastattn.runtime.threads import set_threading, use_threads
    from fastattn.sparse_encoder import SparseEncoder
    from fastattn.sparse_vectors import SparseVectors
    from fastattn.text_classifier import TextClassifier
    from fastattn.token_classifier import TokenClassifier
    from fastattn.translator import Translator
    from fastattn.vector_search import SearchResult, semantic_search

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
    "BlockMask": ("fastattn.functional.block_mask", "BlockMask"),
    "CrossEncoder": ("fastattn.cross_encoder", "CrossEncoder"),
    "DecodingOptions": ("fastattn.decoding.options", "DecodingOptions"),
    "Encoder": ("fastattn.encoder", "Encoder"),
    "ExecutionStats": ("fastattn.results", "ExecutionStats"),
    "FastattnError": ("fastattn.errors", "FastattnError"),
    "KVCache": ("fastattn.functional.cache", "KVCache"),
    "MaskedLanguageModel": ("fastattn.masked_language_model", "MaskedLanguageModel"),
    "MultiHeadAttention": ("fastattn.functional.multi_head", "MultiHeadAttention"),
    "MultiVectorEncoder": ("fastattn.multi_vector_encoder", "MultiVectorEncoder"),
    "ProjectionWeights": ("fastattn.functional.multi_head", "ProjectionWeights"),
    "Score": ("fastattn.results", "Score"),
    "SearchResult": ("fastattn.vector_search", "SearchResult"),
    "SparseEncoder": ("fastattn.sparse_encoder", "SparseEncoder"),
    "SparseVectors": ("fastattn.sparse_vectors", "SparseVectors"),
    "Step": ("fastattn.decoding.options", "Step"),
    "TextClassifier": ("fastattn.text_classifier", "TextClassifier"),
    "TokenClassifier": ("fastattn.token_classifier", "TokenClassifier"),
    "TokenTranslation": ("fastattn.results", "TokenTranslation"),
    "Translation": ("fastattn.results", "Translation"),
    "Translator": ("fastattn.translator", "Translator"),
    "and_masks": ("fastattn.functions.combine", "and_masks"),
    "attention": ("fastattn.functional.attention", "attention"),
    "attention_ragged": ("fastattn.functional.attention", "attention_ragged"),
    "explain_function": ("fastattn.functions.plan", "explain_function"),
    "mechanisms": ("fastattn.mechanisms", ""),
    "multi_head_attention": ("fastattn.functional.multi_head", "multi_head_attention"),
    "or_masks": ("fastattn.functions.combine", "or_masks"),
    "plot_attention": ("fastattn.plot", "plot_attention"),
    "quantize_vectors": ("fastattn.quantized_vectors", "quantize_vectors"),
    "semantic_search": ("fastattn.vector_search", "semantic_search"),
    "set_threading": ("fastattn.runtime.threads", "set_threading"),
    "use_threads": ("fastattn.runtime.threads", "use_threads"),
}

_imported_at = time_ns()  # before any other file of the package was read


def _find_rooms_of_a_clone(folder: str) -> None:
    """Find weights/ and cli/ in a clone, where they lie beside this folder: setup.cfg maps them into the package.

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
