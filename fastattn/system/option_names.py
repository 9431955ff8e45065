"""Error messages for unknown options: the name here of another library's option, or the nearest one."""

import typing
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fastattn.errors import InputError, described

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # that of a TypedDict in annotations, which are strings; before Python 3.11 something stands for it
    Unpack = getattr(typing, "Unpack", dict)

P = ParamSpec("P")
R = TypeVar("R")

NONE: Mapping[str, str] = MappingProxyType({})
_OF_CLASS = {"device": "device, an option of the class"}
_NO_BATCHES = dict.fromkeys(
    ("max_batch_size", "batch_type", "chunk_size", "max_queued_batches"), "left out: batches are made for you"
)
# What CTranslate2, sentence-transformers and transformers call the options of a model's class, of a search, and of
# calls with texts: what to write here.
MODEL = {
    "device_index": "left out: all CPUs are one device",
    "compute_type": "precision",
    "torch_dtype": "precision",
    "dtype": "precision",
    "inter_threads": "threads, the total; processes shares the work among processes",
    "intra_threads": "threads, the total",
    "max_queued_batches": "left out: nothing waits in a queue of batches",
    "model_path": "path",
    "model_name_or_path": "path",
    "model": "path",
    "backend": "left out: there is one",
    "trust_remote_code": "left out: nothing in a checkpoint is run",
    "token": "the environment's HF_TOKEN",
    "cache_folder": "the environment's FASTATTN_CACHE, and HF_HOME for models of the hub",
    "local_files_only": "the environment's FASTATTN_OFFLINE=1",
    "prompts": "prompt, of each call",
    "default_prompt_name": "prompt_name, of each call",
    "truncate_dim": "truncate_dim of each call",
    "activation_fn": "activation_fn of each call",
}
SEARCH = (
    _OF_CLASS
    | _NO_BATCHES
    | {
        "batch_size": "left out: batches are made for you",
        "asynchronous": "submit, or translate_async",
        "num_beams": "beam_size",
        "beam": "beam_size",
        "num_return_sequences": "num_hypotheses",
        "n_best": "num_hypotheses",
        "max_new_tokens": "max_decoding_length",
        "max_length": "max_decoding_length",
        "min_new_tokens": "min_decoding_length",
        "min_length": "min_decoding_length",
        "do_sample": "sampling_topk=0, or from how many tokens to sample",
        **{name: f"sampling_{name.replace('_', '')}" for name in ("top_k", "top_p", "min_p", "temperature")},
        "src_lang": "source_lang",
        "tgt_lang": "target_lang",
        "use_vmap": "shortlist",
        "output_scores": "return_scores, with details=True",
        "output_attentions": "return_attention, with details=True",
    }
)
GENERATION = {name: meant for name, meant in SEARCH.items() if name not in ("max_new_tokens", "min_new_tokens")} | {
    "asynchronous": "submit, or generate_async",
    "do_sample": "sampling_temperature, or another option of sampling",
    "max_decoding_length": "max_new_tokens",
    "max_length": "max_new_tokens, which counts the answer alone",
    "max_tokens": "max_new_tokens",
    "n_predict": "max_new_tokens",
    "min_decoding_length": "min_new_tokens",
    "min_length": "min_new_tokens",
    "stop_strings": "stop",
    "stop_token_ids": "end_token",
    "eos_token_id": "end_token",
    "bad_words_ids": "suppress_sequences",
    "repeat_penalty": "repetition_penalty",
    "add_special_tokens": "special_tokens",
    "truncate": 'context="cut"',
    "logprobs": "return_log_probs",
    "assistant_model": "speculate, a Generator",
    "draft_model": "speculate, a Generator",
    "prompt_lookup_num_tokens": 'speculate="prompt"',
    "stream": "stream, a method",
    "streamer": "stream, a method",
}
TEXTS = (
    _OF_CLASS
    | _NO_BATCHES
    | {
        "sentences": "texts",
        "inputs": "texts",
        "normalize": "normalize_embeddings",
        "precision": "output_dtype; the computation's precision is an option of the class",
        "dimensions": "truncate_dim",
        "truncate": "long",
        "truncation": "long",
        "max_length": "left out: the checkpoint's own",
        "convert_to_tensor": "left out: vectors are NumPy arrays",
        "output_value": "left out: a vector of each text is all there is",
        "pool": "processes, an option of the class",
        "show_progress": "show_progress_bar",
        "aggregation_strategy": "aggregation",
        "return_all_scores": "top_k=None",
        "activation_fct": "activation_fn",
    }
)
QUANTIZE = {"precision": "output_dtype", "embeddings": "vectors", "calibration_embeddings": "calibration"}
# What PyTorch, flash-attention, xformers, FlashInfer, Hugging Face, JAX and ONNX call the options of attention.
_WINDOW, _MASK = (
    "window=(left, right), None for no bound",
    "mask where it is bool, True is seen; bias where it is float",
)
_TYPE = "left out: it is the arrays' own, computed in float32"
_WEIGHTS, _LOGARITHM, _SHAPES = "return_weights", "return_logsumexp", "left out: the shapes show it"

ATTENTION = {
    "is_causal": "causal",
    "attn_mask": _MASK,
    "attention_mask": _MASK,
    "attn_bias": "bias, or causal=True",
    "key_padding_mask": "mask=~key_padding_mask[:, None, None], or lengths",
    "alibi_slopes": "a score_mod: score - slopes[h] * abs(t - s)",
    "softmax_scale": "scale",
    "sm_scale": "scale",
    "scaling": "scale",
    "logits_soft_cap": "softcap",
    "soft_cap": "softcap",
    "window_size": _WINDOW,
    "sliding_window": _WINDOW,
    "local_window_size": _WINDOW,
    "left_window_size": _WINDOW,
    "right_window_size": _WINDOW,
    "s_aux": "sinks",
    "learnable_sink": "sinks",
    "cu_seqlens_q": "query_starts of attention_ragged",
    "cu_seqlens_k": "key_starts of attention_ragged",
    "max_seqlen_q": _SHAPES,
    "max_seqlen_k": _SHAPES,
    "cache_seqlens": 'lengths, with causal also offset="end"',
    "nonpad_kv_seqlen": 'lengths, with causal also offset="end"',
    "key_value_seq_lengths": "lengths",
    "block_table": "KVCache, which keeps its own",
    "past_key": "KVCache",
    "past_value": "KVCache",
    "enable_gqa": _SHAPES,
    "q_num_heads": _SHAPES,
    "kv_num_heads": _SHAPES,
    "return_attn_probs": _WEIGHTS,
    "need_weights": _WEIGHTS,
    "output_attentions": _WEIGHTS,
    "average_attn_weights": "return_weights, then weights.mean(axis=1)",
    "return_lse": _LOGARITHM,
    "return_softmax_lse": _LOGARITHM,
    "return_aux": _LOGARITHM,
    "dropout": "left out: nothing is dropped",
    "dropout_p": "left out: nothing is dropped",
    "p": "left out: nothing is dropped",
    "deterministic": "left out: it always is",
    "kernel_options": "left out",
    "num_splits": "left out",
    "backend": "left out",
    "dtype": _TYPE,
    "compute_type": _TYPE,
    "softmax_precision": _TYPE,
    "precision": _TYPE,
    "num_threads": "threads",
    "intra_threads": "threads",
}
LAYER = ATTENTION | _OF_CLASS
ALWAYS_CAUSAL = "left out: steps always are"
STEPS = LAYER | {
    "causal": ALWAYS_CAUSAL,
    "is_causal": ALWAYS_CAUSAL,
    "offset": "left out: queries are the last positions",
    "cache_seqlens": "left out: the cache knows its lengths",
    "mask": "bias, -inf where a key is hidden",
}


class UnknownOptionError(InputError, TypeError):
    """A keyword argument that a function does not have."""


def what_was_meant(name: str, known: Iterable[str], foreign: Mapping[str, str] = NONE) -> str:
    """What to add to the message about an unknown name, or "".

    foreign   by other libraries' names, what to write here, such as {"is_causal": "causal=True"}
    """
    if name in foreign:
        return f"; here it is {foreign[name]}"
    import difflib  # only here: it takes half a millisecond

    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else ""


def unknown_option(function: str, name: str, known: Iterable[str], foreign: Mapping[str, str] = NONE) -> str:
    """The message of the TypeError for a keyword argument ``name``.

    function  as the caller wrote it, without parentheses
    known     the names of its options
    """
    return f"{function}() got an unexpected keyword argument {described(name)}{what_was_meant(name, known, foreign)}"


def explains_options(
    foreign: Mapping[str, str], options: type | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator of functions: a keyword argument that is unknown raises UnknownOptionError.

    options  the TypedDict of what a function with ``**options`` takes beside its parameters; ``help`` shows them too
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__  # type: ignore[attr-defined]  # of a function in Python
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        known = dict.fromkeys(name for name in (*names, *getattr(options, "__annotations__", ())) if name != "self")

        @wraps(function)
        def checked(*arguments: P.args, **given: P.kwargs) -> R:
            for name in given:
                if name not in known:
                    of_class = function.__name__ in ("__init__", "__call__")
                    called = type(arguments[0]).__name__ if of_class else function.__name__
                    raise UnknownOptionError(unknown_option(called, name, known, foreign))
            return function(*arguments, **given)

        if options is not None:
            _show(checked, function, options)
        return checked

    return decorate


def _show(checked: Callable, function: Callable, options: type) -> None:
    """Name the options in place of ``**`` in what ``help`` and ``get_type_hints`` read."""
    shown = signature(function)
    *parameters, rest = shown.parameters.values()
    kinds = options.__annotations__
    named = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=getattr(kind, "__forward_arg__", kind))
        for name, kind in kinds.items()
    ]
    checked.__signature__ = shown.replace(parameters=[*parameters, *named])  # type: ignore[attr-defined]
    checked.__annotations__ = {n: kind for n, kind in function.__annotations__.items() if n != rest.name} | kinds
