"""What a caller gives a Translator, checked: texts, lists of tokens, target prefixes."""

from collections.abc import Iterable, Sequence
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError


def text_list(name: str, values: Any) -> list[Any]:
    """``values`` as a list; InputError where there is nothing to go through."""
    if not isinstance(values, Iterable):
        raise InputError(f"{name} should be a str or an iterable of them, got {type(values).__name__}")
    return list(values)


def token_lists(name: str, values: Any) -> list[list[str]]:
    """``values`` as a list of lists of tokens; InputError for anything else."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise InputError(f"{name} should be a list of lists of tokens, got {type(values).__name__}")
    lists: list[list[str]] = []
    for tokens in values:
        if isinstance(tokens, str) or not isinstance(tokens, Iterable):
            raise InputError(f"{name} should hold lists of tokens, number {len(lists)} is {type(tokens).__name__}")
        lists.append(list(tokens))
        wrong = next((token for token in lists[-1] if not isinstance(token, str)), None)
        if wrong is not None:
            raise InputError(f"{name} should hold tokens as str, list {len(lists) - 1} holds {type(wrong).__name__}")
    return lists


def check_details(options: DecodingOptions, details: bool) -> None:
    if not details and options.num_hypotheses > 1:
        raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
    if not details and options.return_attention:
        raise InputError("return_attention needs details=True: a text alone does not show it")


def prefix_of_each(target_prefix: str | Sequence[str] | None, texts: list[str]) -> Sequence[str | None]:
    """One prefix for each text."""
    if target_prefix is None or isinstance(target_prefix, str):
        return [target_prefix] * len(texts)
    target_prefix = text_list("target_prefix", target_prefix)
    if len(target_prefix) != len(texts):
        raise InputError(
            f"target_prefix should be one str, or one for each text: {len(texts)}, not {len(target_prefix)}"
        )
    return target_prefix
