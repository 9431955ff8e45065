"""The search settings of a Hugging Face directory: generation_config.json -> DecodingSettings.

Settings mean what they mean in transformers' generate. Older directories have them in config.json.
"""

import math
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from fastattn.spec.text_spec import EARLY_STOPPING, DecodingSettings, SearchRules
from fastattn.system.option_names import SEARCH
from fastattn.weights.containers.json_file import JsonObject, read_object, shorten
from fastattn.weights.folder import Folder

FILE = "generation_config.json"
# transformers' name of a setting -> our name.
COUNTS = {"num_beams": "beam_size", "no_repeat_ngram_size": "no_repeat_ngram_size"}
NUMBERS = {"length_penalty": "length_penalty", "repetition_penalty": "repetition_penalty"}
# transformers' name of a limit -> (our name, the least value). LIMITS count the start token too.
LIMITS = {"max_length": ("max_decoding_length", 1), "min_length": ("min_decoding_length", 0)}
NEW_LIMITS = {"max_new_tokens": ("max_decoding_length", 1), "min_new_tokens": ("min_decoding_length", 0)}
# Setting that no search here follows -> values that need no warning; most of these have no effect. A search here ends
# when as many answers have ended as there are beams; without early stopping, transformers may find a better answer.
HARMLESS_VALUES: dict[str, tuple[Any, ...]] = {
    "early_stopping": (False, True),
    "num_beam_groups": (1,),
    "diversity_penalty": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1,),
    **dict.fromkeys(("num_return_sequences", "typical_p", "top_h"), (1,)),
    **dict.fromkeys(("epsilon_cutoff", "eta_cutoff", "penalty_alpha"), (0,)),
    "guidance_scale": (1,),
    **dict.fromkeys(("exponential_decay_length_penalty", "sequence_bias", "force_words_ids", "constraints"), ()),
    **dict.fromkeys(("begin_suppress_tokens", "forced_decoder_ids"), ([],)),
    "watermarking_config": (),
    "stop_strings": ([],),
    "max_time": (),
    "token_healing": (False,),
}
# Settings about how to compute, what to return, or which ids are special.
IGNORED = frozenset(
    "_from_model_config transformers_version trust_remote_code renormalize_logits remove_invalid_values low_memory "
    "use_cache cache_implementation cache_config return_legacy_cache disable_compile compile_config output_attentions "
    "output_hidden_states output_scores output_logits return_dict_in_generate pad_token_id bos_token_id eos_token_id "
    "decoder_start_token_id is_assistant num_assistant_tokens num_assistant_tokens_schedule "
    "assistant_confidence_threshold assistant_early_exit assistant_lookbehind target_lookbehind "
    "prompt_lookup_num_tokens max_matching_ngram_size prefill_chunk_size generation_kwargs dola_layers".split()
)
# Settings that only apply with do_sample -> transformers' default.
SAMPLING = {"top_k": 50, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def generation_values(folder: Folder, config: JsonObject) -> JsonObject:
    """The object that has the settings: generation_config.json, or config.json if there is no such file."""
    return read_object(folder, FILE) if folder.contains(FILE) else config


def read_settings(
    values: JsonObject, vocabulary: Sequence[Any], is_own_file: bool, end_ids: Sequence[int] | None = None
) -> DecodingSettings:
    """The settings of ``generation_values``; CheckpointError for values of a wrong type and invalid ids.

    vocabulary   the target's tokens by id
    is_own_file  whether ``values`` has only generation settings
    end_ids      the end tokens of a language model: limits of whole texts do not apply to answers, no token is forced.
                 None: a translation model, whose reader removes the tokens of ``never_produced_ids`` from the output
    """
    settings: dict[str, Any] = {field: values.integer(name) for name, field in COUNTS.items() if values.has(name)}
    settings |= {field: values.number(name) for name, field in NUMBERS.items() if values.has(name)}
    for limits, start_tokens in ((LIMITS, 1), (NEW_LIMITS, 0)) if end_ids is None else ((NEW_LIMITS, 0),):
        for name, (field, minimum) in limits.items():
            if values.has(name):
                settings[field] = max(minimum, values.integer(name) - start_tokens)
    names = values.values if is_own_file else (*HARMLESS_VALUES, "forced_eos_token_id")
    not_followed = _unfollowed_settings(values, names, translates=end_ids is None)
    if values.boolean("do_sample", False):
        if settings.get("beam_size", 1) == 1:
            settings["beam_size"] = 1
            for name, default in SAMPLING.items():
                number = values.integer(name, default) if isinstance(default, int) else values.number(name, default)
                settings[SEARCH[name]] = number
            settings["sampling_topk"] = min(settings["sampling_topk"], len(vocabulary))
        else:
            not_followed.append(f"do_sample with num_beams {settings['beam_size']}")
    if end_ids is None:
        settings.setdefault("min_decoding_length", 0)
    penalty = settings.get("repetition_penalty", 1)
    if settings.get("beam_size", 1) > 1 and penalty != 1 and end_ids is not None:
        # Here, as in CTranslate2, logits of language models are penalized, in transformers a beam's log-probabilities.
        not_followed.append(f"repetition_penalty {penalty:g} exactly, with num_beams above 1")
    if settings.get("min_decoding_length", 0) > settings.get("max_decoding_length", math.inf):
        settings["min_decoding_length"] = settings["max_decoding_length"]
    forced_id = values.integer("forced_bos_token_id") if values.has("forced_bos_token_id") and end_ids is None else None
    sequences = [sequence for sequence in id_lists(values, "bad_words_ids") if len(sequence) > 1]
    sequences += [] if end_ids is None else [[number] for number in never_produced_ids(values, end_ids)]
    first_suppressed = [] if end_ids is None else id_list(values, "begin_suppress_tokens")
    for number in chain(*sequences, first_suppressed, () if forced_id is None else (forced_id,)):
        if not 0 <= number < len(vocabulary) or not vocabulary[number]:
            raise values.error("forced_bos_token_id or one of bad_words_ids", "the id of a target token", number)
    return DecodingSettings(
        **settings,
        rules=None if end_ids is not None else _read_rules(values),
        suppress_sequences=tuple(map(tuple, sequences)),
        begin_suppress_tokens=tuple(first_suppressed),
        forced_tokens=() if forced_id is None else (vocabulary[forced_id],),
        not_followed=tuple(not_followed),
    )


def _read_rules(values: JsonObject) -> SearchRules:
    """The rules of transformers' search for a translation model."""
    stopping, end = str(values.values.get("early_stopping")).lower(), values.values.get("forced_eos_token_id")
    return SearchRules(
        early_stopping=stopping if stopping in EARLY_STOPPING else EARLY_STOPPING[1],
        forced_end=end is not None and end in _end_values(values),
        renormalized=values.boolean("renormalize_logits", False),
    )


def _end_values(values: JsonObject) -> tuple[object, ...]:
    """The values of a setting that mean the end token: its id, and a list of that id alone."""
    end = values.values.get("eos_token_id")
    return (*end, end) if isinstance(end, list) and len(end) == 1 else (end, [end])


def id_lists(values: JsonObject, name: str) -> list[list[int]]:
    """A list of lists of ids, empty if absent; CheckpointError for anything else."""
    lists = values.values.get(name)
    if lists is None:
        return []
    if not isinstance(lists, list) or not all(ids and are_ids(ids) for ids in lists):
        raise values.error(name, "lists of ids", lists)
    return lists


def never_produced_ids(values: JsonObject, end_ids: Sequence[int]) -> list[int]:
    """The ids of suppress_tokens, and the single tokens of bad_words_ids but for end tokens, as in transformers."""
    single_ids = [ids[0] for ids in id_lists(values, "bad_words_ids") if len(ids) == 1 and ids[0] not in end_ids]
    return sorted({*single_ids, *id_list(values, "suppress_tokens")})


def id_list(values: JsonObject, name: str) -> list[int]:
    """A list of ids, empty if absent; CheckpointError for anything else."""
    ids: list[int] = values.values.get(name) or []
    if not are_ids(ids):
        raise values.error(name, "a list of ids", ids)
    return ids


def are_ids(ids: object) -> bool:
    return isinstance(ids, list) and all(type(number) is int and number >= 0 for number in ids)


def _unfollowed_settings(values: JsonObject, names: Iterable[str], translates: bool) -> list[str]:
    """Those settings among ``names`` that would change the results, or are unknown, each with its value."""
    followed_names = {*COUNTS, *NUMBERS, *LIMITS, *NEW_LIMITS, *SAMPLING, *IGNORED}
    followed_names |= {"do_sample", "bad_words_ids", "suppress_tokens", "forced_bos_token_id"}
    followed_names |= set() if translates else {"begin_suppress_tokens"}
    harmless_values = HARMLESS_VALUES | {"forced_eos_token_id": _end_values(values)}
    if translates:
        harmless_values["early_stopping"] = (False, True, "never")
    not_followed = []
    for name in names:
        value = values.values.get(name)
        if value is not None and name not in followed_names and value not in harmless_values.get(name, ()):
            not_followed.append(f"{shorten(name)[1:-1]} {shorten(value)}")
    return not_followed
