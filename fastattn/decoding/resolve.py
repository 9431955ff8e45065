"""What a search runs with: what the caller gives, else what the checkpoint wants, else the defaults."""

import warnings
from collections.abc import Mapping
from dataclasses import fields
from numbers import Integral
from typing import Any

from fastattn.decoding.options import WIDEST_BEAM, DecodingOptions
from fastattn.errors import CheckpointError, InputError
from fastattn.spec import TranslationText

_DEFAULTS = {field.name: field.default for field in fields(DecodingOptions)}
_SAMPLING = ("sampling_topk", "sampling_topp", "sampling_temperature")
_LIMITS = ("max_decoding_length", "max_length_factor")


def resolve_options(own: Mapping[str, Any], given: Mapping[str, Any]) -> DecodingOptions:
    """The options of a call that gives some of them, of a checkpoint whose ``own`` settings stand in for the others.

    A beam size that is not given is 1 where the call asks for samples, and never less than the num_hypotheses it asks
    for. Settings of the checkpoint that would contradict what is given do not hold: its own sampling beside a beam,
    its own limit of the length beside another.
    """
    chosen = dict(own)
    sampled = any(given.get(name, _DEFAULTS[name]) != _DEFAULTS[name] for name in _SAMPLING)
    if "beam_size" not in given:
        if sampled:
            chosen["beam_size"] = 1
        elif not given.get("return_alternatives") and "sampling_topk" not in chosen:
            chosen["beam_size"] = _at_least(chosen.get("beam_size", _DEFAULTS["beam_size"]), given)
    elif given["beam_size"] != 1 and not sampled:
        _drop(chosen, _SAMPLING)
    if any(given.get(name) is not None for name in _LIMITS):
        _drop(chosen, _LIMITS)
    return DecodingOptions(**chosen | dict(given))


def own_settings(text: TranslationText) -> dict[str, Any]:
    """The checkpoint's own decoding settings; a warning tells of those that cannot be followed."""
    settings = text.decoding.options() | ({} if text.writes_unknowns else {"disable_unk": True})
    if text.vocabulary_map is not None:
        settings["shortlist"] = False  # CTranslate2's default
    try:
        resolve_options(settings, {})
    except InputError as error:
        raise CheckpointError(f"the checkpoint's own decoding settings cannot be followed: {error}") from None
    if text.decoding.not_followed:
        remarks = "; ".join(text.decoding.not_followed)
        warnings.warn(f"the checkpoint's own settings that are not followed: {remarks}", stacklevel=4)
    return settings


def _at_least(beam_size: int, given: Mapping[str, Any]) -> int:
    """``beam_size``, widened to the hypotheses asked for; what cannot be meant is left to DecodingOptions to refuse."""
    wanted = given.get("num_hypotheses", 1)
    countable = isinstance(wanted, Integral) and wanted <= WIDEST_BEAM and "patience" not in given
    return max(beam_size, int(wanted)) if countable else beam_size


def _drop(chosen: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        chosen.pop(name, None)
