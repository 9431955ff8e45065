"""Attention models in Python that Numba compiles: translation, generation, vectors of texts, attention on arrays.

A public name is imported at its first use, so that ``import fastattn`` itself costs nothing.
"""

import os
from importlib import import_module
from time import time_ns
from typing import TYPE_CHECKING, Any

from fastattn._version import VERSION

# isort: off
if TYPE_CHECKING:  # ``X as X`` tells type checkers that the name is public
    from fastattn import mechanisms as mechanisms
    from fastattn.array_attention.attention import attention as attention, attention_ragged as attention_ragged
    from fastattn.array_attention.block_mask import BlockMask as BlockMask
    from fastattn.array_attention.cache import KVCache as KVCache
    from fastattn.array_attention.multi_head import MultiHeadAttention as MultiHeadAttention
    from fastattn.array_attention.multi_head import ProjectionWeights as ProjectionWeights
    from fastattn.array_attention.multi_head import multi_head_attention as multi_head_attention
    from fastattn.decoding.options import DecodingOptions as DecodingOptions, Step as Step
    from fastattn.documents.translating import translate_document as translate_document
    from fastattn.encoders.cross_encoder import CrossEncoder as CrossEncoder
    from fastattn.encoders.encoder import Encoder as Encoder
    from fastattn.encoders.masked_language_model import MaskedLanguageModel as MaskedLanguageModel
    from fastattn.encoders.multi_vector_encoder import MultiVectorEncoder as MultiVectorEncoder
    from fastattn.encoders.sparse_encoder import SparseEncoder as SparseEncoder
    from fastattn.encoders.text_classifier import TextClassifier as TextClassifier
    from fastattn.encoders.token_classifier import TokenClassifier as TokenClassifier
    from fastattn.errors import FastattnError as FastattnError
    from fastattn.generation.calls import Generation as Generation, TextScore as TextScore
    from fastattn.generation.generator import Generator as Generator
    from fastattn.generation.language_model_translator import LanguageModelTranslator as LanguageModelTranslator
    from fastattn.generation.language_model_translator import MarkedTranslation as MarkedTranslation
    from fastattn.plot import AttentionPlot as AttentionPlot, plot_attention as plot_attention
    from fastattn.runtime.threads import set_threading as set_threading, use_threads as use_threads
    from fastattn.translation.calls import ExecutionStats as ExecutionStats, Score as Score
    from fastattn.translation.calls import TokenTranslation as TokenTranslation, Translation as Translation
    from fastattn.translation.translator import Translator as Translator
    from fastattn.user_functions.combine import and_masks as and_masks, or_masks as or_masks
    from fastattn.user_functions.plan import explain_function as explain_function
    from fastattn.vectors.quantized import quantize_vectors as quantize_vectors
    from fastattn.vectors.search import SearchResult as SearchResult, semantic_search as semantic_search
    from fastattn.vectors.sparse import SparseVectors as SparseVectors
# isort: on

__version__ = VERSION
# Module -> its public names
_PUBLIC_NAMES = {
    "array_attention.attention": "attention attention_ragged",
    "array_attention.block_mask": "BlockMask",
    "array_attention.cache": "KVCache",
    "array_attention.multi_head": "MultiHeadAttention ProjectionWeights multi_head_attention",
    "decoding.options": "DecodingOptions Step",
    "documents.translating": "translate_document",
    "encoders.cross_encoder": "CrossEncoder",
    "encoders.encoder": "Encoder",
    "encoders.masked_language_model": "MaskedLanguageModel",
    "encoders.multi_vector_encoder": "MultiVectorEncoder",
    "encoders.sparse_encoder": "SparseEncoder",
    "encoders.text_classifier": "TextClassifier",
    "encoders.token_classifier": "TokenClassifier",
    "errors": "FastattnError",
    "generation.calls": "Generation TextScore",
    "generation.generator": "Generator",
    "generation.language_model_translator": "LanguageModelTranslator MarkedTranslation",
    "plot": "AttentionPlot plot_attention",
    "runtime.threads": "set_threading use_threads",
    "translation.calls": "ExecutionStats Score TokenTranslation Translation",
    "translation.translator": "Translator",
    "user_functions.combine": "and_masks or_masks",
    "user_functions.plan": "explain_function",
    "vectors.quantized": "quantize_vectors",
    "vectors.search": "SearchResult semantic_search",
    "vectors.sparse": "SparseVectors",
}
_MODULES = {name: module for module, names in _PUBLIC_NAMES.items() for name in names.split()}

if not TYPE_CHECKING:
    __all__ = sorted([*_MODULES, "__version__", "mechanisms"])

    def __dir__() -> list[str]:
        return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})


_imported_at = time_ns()  # before Python reads a file of the package that ``loading.model_cache`` checks


# In a clone, the packages weights/ and cli/ lie next to this folder; setup.py installs them inside. A process that
# starts in the clone's root imports the clone's folder, not the installed package.
_folder = os.path.dirname(os.path.abspath(__file__))
_clone = os.path.dirname(_folder)
if not os.path.isdir(os.path.join(_folder, "weights")) and os.path.isfile(os.path.join(_clone, "setup.cfg")):
    __path__.append(_clone)


def __getattr__(name: str) -> Any:
    if name == "mechanisms":
        return import_module("fastattn.mechanisms")
    if name not in _MODULES:
        raise AttributeError(f"module 'fastattn' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fastattn.{_MODULES[name]}"), name)
    return value
