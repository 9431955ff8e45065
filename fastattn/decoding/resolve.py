"""The options of a search: the caller's, else the checkpoint's settings, else the defaults."""

from collections.abc import Mapping
from numbers import Integral
from typing import Any

from fastattn.decoding.options import WIDEST_BEAM, DecodingOptions
from fastattn.errors import CheckpointError, InputError, warn
from fastattn.spec.text_spec import TranslationText

_SAMPLING = ("sampling_topk", "sampling_topp", "sampling_temperature")
_LIMITS = ("max_decoding_length", "max_length_factor")


def resolve_options(settings: Mapping[str, Any], given: Mapping[str, Any]) -> DecodingOptions:
    """The options of a call: those ``given``, else the checkpoint's ``settings``, else the defaults.

    A beam size that is not given is 1 where tokens are sampled, and never less than the num_hypotheses asked for.
    Settings of the checkpoint that contradict a given option are dropped: its sampling where a beam or a bias is given,
    its length limits where another is. Its least or greatest length gives way to the other one, if that is given.
    """
    chosen = dict(settings)
    if given.get("beam_size", 1) != 1 or given.get("prefix_bias_beta", 0) != 0:
        _drop(chosen, _SAMPLING)
    if "beam_size" not in given:
        if (chosen | dict(given)).get("sampling_topk", 1) != 1:
            chosen["beam_size"] = 1
        elif not given.get("return_alternatives") and "num_hypotheses" in given:
            chosen["beam_size"] = _widened(chosen.get("beam_size", DecodingOptions.beam_size), given)
    if any(given.get(name) is not None for name in _LIMITS):
        _drop(chosen, _LIMITS)
    for name, other, nearer in (
        ("max_decoding_length", "min_decoding_length", max),
        ("min_decoding_length", "max_decoding_length", min),
    ):
        if isinstance(chosen.get(name), int) and isinstance(given.get(other), Integral):
            chosen[name] = nearer(chosen[name], int(given[other]))
    return DecodingOptions(**chosen | dict(given))


def checkpoint_settings(text: TranslationText) -> dict[str, Any]:
    """The checkpoint's own decoding settings by option; warns of those that cannot be followed."""
    settings = text.decoding.options() | ({} if text.writes_unknowns else {"disable_unk": True})
    if text.vocabulary_map is not None:
        settings["shortlist"] = False  # CTranslate2's default
    try:
        resolve_options(settings, {})
    except InputError as error:
        raise CheckpointError(f"the checkpoint's own decoding settings cannot be followed: {error}") from None
    if text.decoding.not_followed:
        remarks = "; ".join(text.decoding.not_followed)
        warn(f"the checkpoint's own settings that are not followed: {remarks}")
    return settings


def _widened(beam_size: int, given: Mapping[str, Any]) -> int:
    """``beam_size``, widened to the hypotheses asked for; what cannot be meant is left to DecodingOptions to refuse."""
    wanted = given["num_hypotheses"]
    countable = isinstance(wanted, Integral) and wanted <= WIDEST_BEAM and "patience" not in given
    return max(beam_size, int(wanted)) if countable else beam_size


def _drop(chosen: dict[str, Any], names: tuple[str, ...]) -> None:
    for name in names:
        chosen.pop(name, None)
