"""Error messages for unknown options: fastattn's name for another library's option, or the nearest name."""

import typing
from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from types import MappingProxyType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from fastattn.errors import InputError, described

if TYPE_CHECKING:
    from typing_extensions import Unpack as Unpack
else:  # only annotations that are strings use it; before Python 3.11 it is dict
    Unpack = getattr(typing, "Unpack", dict)

P = ParamSpec("P")
R = TypeVar("R")

NONE: Mapping[str, str] = MappingProxyType({})


def _by_option(meanings: dict[str, str]) -> dict[str, str]:
    """Another library's option -> what to write in fastattn. ``meanings``: the inverse, with spaces between options."""
    return {option: meaning for meaning, options in meanings.items() for option in options.split()}


_OF_CLASS = {"device": "device, an option of the class"}
_NO_BATCHES = _by_option(
    {"left out: batches are made for you": "max_batch_size batch_type chunk_size max_queued_batches"}
)
# What to write in fastattn for options of CTranslate2, sentence-transformers and transformers: of a model's class, of a
# search, and of calls with texts.
MODEL = _by_option(
    {
        "left out: all CPUs are one device": "device_index",
        "precision": "compute_type torch_dtype dtype",
        "threads, the total; processes shares the work among processes": "inter_threads",
        "threads, the total": "intra_threads",
        "left out: nothing waits in a queue of batches": "max_queued_batches",
        "path": "model_path model_name_or_path model",
        "left out: there is one": "backend",
        "left out: nothing in a checkpoint is run": "trust_remote_code",
        "the environment's HF_TOKEN": "token",
        "the environment's FASTATTN_CACHE, and HF_HOME for models of the hub": "cache_folder",
        "the environment's FASTATTN_OFFLINE=1": "local_files_only",
        "prompt, of each call": "prompts",
        "prompt_name, of each call": "default_prompt_name",
        "truncate_dim of each call": "truncate_dim",
        "activation_fn of each call": "activation_fn",
    }
)
SEARCH = (
    _OF_CLASS
    | _NO_BATCHES
    | _by_option(
        {
            "left out: batches are made for you": "batch_size",
            "submit, or translate_async": "asynchronous",
            "beam_size": "num_beams beam",
            "num_hypotheses": "num_return_sequences n_best",
            "max_decoding_length": "max_new_tokens max_length",
            "min_decoding_length": "min_new_tokens min_length",
            "sampling_topk=0, or from how many tokens to sample": "do_sample",
            **{f"sampling_{name.replace('_', '')}": name for name in ("top_k", "top_p", "min_p", "temperature")},
            "source_lang": "src_lang",
            "target_lang": "tgt_lang",
            "shortlist": "use_vmap",
            "return_scores, with details=True": "output_scores",
            "return_attention, with details=True": "output_attentions",
        }
    )
)
GENERATION = {option: meaning for option, meaning in SEARCH.items() if not option.endswith("_new_tokens")} | _by_option(
    {
        "submit, or generate_async": "asynchronous",
        "sampling_temperature, or another option of sampling": "do_sample",
        "max_new_tokens": "max_decoding_length max_tokens n_predict",
        "max_new_tokens, which counts the answer alone": "max_length",
        "min_new_tokens": "min_decoding_length min_length",
        "stop": "stop_strings",
        "end_token": "stop_token_ids eos_token_id",
        "suppress_sequences": "bad_words_ids",
        "repetition_penalty": "repeat_penalty",
        "special_tokens": "add_special_tokens",
        'context="cut"': "truncate",
        "return_log_probs": "logprobs",
        "top_log_probs, with return_log_probs": "top_logprobs",
        "speculate, a Generator": "assistant_model draft_model",
        'speculate="prompt"': "prompt_lookup_num_tokens",
        "stream, a method": "stream streamer",
    }
)
TEXTS = (
    _OF_CLASS
    | _NO_BATCHES
    | _by_option(
        {
            "texts": "sentences inputs",
            "normalize_embeddings": "normalize",
            "output_dtype; the computation's precision is an option of the class": "precision",
            "truncate_dim": "dimensions",
            "long": "truncate truncation",
            "left out: the checkpoint's own": "max_length",
            "left out: vectors are NumPy arrays": "convert_to_tensor",
            "left out: a vector of each text is all there is": "output_value",
            "processes, an option of the class": "pool",
            "show_progress_bar": "show_progress",
            "aggregation": "aggregation_strategy",
            "top_k=None": "return_all_scores",
            "activation_fn": "activation_fct",
        }
    )
)
QUANTIZE = {"precision": "output_dtype", "embeddings": "vectors", "calibration_embeddings": "calibration"}
# The same for options of attention in PyTorch, flash-attention, xformers, FlashInfer, Hugging Face, JAX and ONNX.
ATTENTION = _by_option(
    {
        "causal": "is_causal",
        "mask where it is bool, True is seen; bias where it is float": "attn_mask attention_mask",
        "bias, or causal=True": "attn_bias",
        "mask=~key_padding_mask[:, None, None], or lengths": "key_padding_mask",
        "a score_mod: score - slopes[h] * abs(t - s)": "alibi_slopes",
        "scale": "softmax_scale sm_scale scaling",
        "softcap": "logits_soft_cap soft_cap",
        "window=(left, right), None for no bound": (
            "window_size sliding_window local_window_size left_window_size right_window_size"
        ),
        "sinks": "s_aux learnable_sink",
        "query_starts of attention_ragged": "cu_seqlens_q",
        "key_starts of attention_ragged": "cu_seqlens_k",
        'lengths, with causal also offset="end"': "cache_seqlens nonpad_kv_seqlen",
        "lengths": "key_value_seq_lengths",
        "KVCache, which keeps its own": "block_table",
        "KVCache": "past_key past_value",
        "left out: the shapes show it": "max_seqlen_q max_seqlen_k enable_gqa q_num_heads kv_num_heads",
        "return_weights": "return_attn_probs need_weights output_attentions",
        "return_weights, then weights.mean(axis=1)": "average_attn_weights",
        "return_logsumexp": "return_lse return_softmax_lse return_aux",
        "left out: nothing is dropped": "dropout dropout_p p",
        "left out: it always is": "deterministic",
        "left out": "kernel_options num_splits backend",
        "left out: it is the arrays' own, computed in float32": "dtype compute_type softmax_precision precision",
        "threads": "num_threads intra_threads",
    }
)
LAYER = ATTENTION | _OF_CLASS  # of MultiHeadAttention
STEPS = LAYER | {
    **_by_option({"left out: steps always are": "causal is_causal"}),
    "offset": "left out: queries are the last positions",
    "cache_seqlens": "left out: the cache knows its lengths",
    "mask": "bias, -inf where a key is hidden",
}


class UnknownOptionError(InputError, TypeError):
    """A keyword argument that a function does not have."""


def suggest_name(name: str, names: Iterable[str], foreign_names: Mapping[str, str] = NONE) -> str:
    """The end of a message about an unknown name: the name that the caller probably means, or "".

    foreign_names  another library's name -> what to write in fastattn, such as {"is_causal": "causal=True"}
    """
    if name in foreign_names:
        return f"; here it is {foreign_names[name]}"
    import difflib  # here, since the import takes half a millisecond

    matches = difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {matches[0]}?" if matches else ""


def explains_options(
    foreign_names: Mapping[str, str], options: type | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """A decorator that makes unknown keyword arguments of a function raise UnknownOptionError.

    foreign_names  as for ``suggest_name``
    options        the TypedDict of the options that the function takes as ``**options``, which ``help`` then shows
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        code = function.__code__  # type: ignore[attr-defined]  # every Python function has it
        names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        own_names = dict.fromkeys(name for name in (*names, *getattr(options, "__annotations__", ())) if name != "self")

        @wraps(function)
        def wrapper(*arguments: P.args, **keywords: P.kwargs) -> R:
            for name in keywords:
                if name not in own_names:
                    is_of_class = function.__name__ in ("__init__", "__call__")
                    callee = type(arguments[0]).__name__ if is_of_class else function.__name__
                    suggestion = suggest_name(name, own_names, foreign_names)
                    fault = f"got an unexpected keyword argument {described(name)}"
                    raise UnknownOptionError(f"{callee}() {fault}{suggestion}")
            return function(*arguments, **keywords)

        if options is not None:
            # ``help`` and ``get_type_hints`` read the options in place of ``**options``.
            old_signature, hints = signature(function), options.__annotations__
            *parameters, double_star = old_signature.parameters.values()
            parameters += [
                Parameter(name, Parameter.KEYWORD_ONLY, default=..., annotation=getattr(hint, "__forward_arg__", hint))
                for name, hint in hints.items()
            ]
            wrapper.__signature__ = old_signature.replace(parameters=parameters)  # type: ignore[attr-defined]
            wrapper.__annotations__ = {
                name: hint for name, hint in function.__annotations__.items() if name != double_star.name
            } | hints
        return wrapper

    return decorate
