"""Checks of the arguments of a Translator: texts, lists of tokens, target prefixes, end tokens."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from numbers import Integral
from typing import Any

from fastattn.decoding.options import DecodingOptions
from fastattn.errors import InputError, check_bool, check_several

Prefixes = str | Iterable[str | None] | None  # one for all texts, or one each


def token_lists(name: str, values: Any) -> list[list[str]]:
    """``values`` as a list of lists of tokens; InputError for anything else."""
    lists: list[list[str]] = []
    for tokens in check_several(name, values, "a list of lists of tokens"):
        lists.append(list(check_several(f"{name}[{len(lists)}]", tokens, "a list of tokens")))
        wrong = next((token for token in lists[-1] if not isinstance(token, str)), None)
        if wrong is not None:
            raise InputError(f"{name} should hold tokens as str, list {len(lists) - 1} holds {type(wrong).__name__}")
    return lists


def token_prefixes(target_prefix: Any, sources: int) -> list[list[str]]:
    """The target prefix of each source, [] for None; InputError unless there is one for each source."""
    if target_prefix is None:
        return [[] for _ in range(sources)]
    listed = check_several("target_prefix", target_prefix, "a list of lists of tokens")
    prefixes = token_lists("target_prefix", [[] if prefix is None else prefix for prefix in listed])
    if len(prefixes) != sources:
        raise InputError(f"target_prefix should hold one prefix for each source: {sources}, not {len(prefixes)}")
    return prefixes


def end_ids(end_token: Any, known_ids: Callable[[Sequence[str]], list[int]], vocabulary: int) -> list[int]:
    """The ids of a token, an id, or a list of them; [] for None. ``known_ids`` raises for an unknown token."""
    if end_token is None:
        return []
    listed = [end_token] if isinstance(end_token, str | Integral) else end_token
    if not isinstance(listed, Iterable) or isinstance(listed, bytes | Mapping):
        raise InputError(f"end_token should be a token, an id, or a list of them, got {end_token!r}")
    ids: list[int] = []
    for token in listed:
        if isinstance(token, str):
            ids += known_ids([token])
        elif isinstance(token, Integral) and not isinstance(token, bool) and 0 <= int(token) < vocabulary:
            ids.append(int(token))
        else:
            raise InputError(f"end_token should hold tokens, or ids from 0 to {vocabulary - 1}; got {token!r}")
    if not ids:
        raise InputError("end_token should be at least one token")
    return list(dict.fromkeys(ids))


def check_details(options: DecodingOptions, details: bool) -> None:
    check_bool("details", details)
    if not details and options.num_hypotheses > 1:
        raise InputError("num_hypotheses above 1 needs details=True: a text alone shows only the best")
    if not details and options.return_attention:
        raise InputError("return_attention needs details=True: a text alone does not show it")


def check_file_options(options: Mapping[str, Any], with_scores: bool) -> None:
    for name, instead in (
        ("details", "a file has room for texts and scores"),
        ("target_prefix", "name a target_path"),
        ("return_exceptions", "a file is whole or not there"),
    ):
        if name in options:
            raise InputError(f"translate_file takes no {name}: {instead}")
    if with_scores and not options.get("return_scores", True):
        raise InputError("with_scores needs return_scores=True")


def check_stream(options: DecodingOptions) -> None:
    if not options.greedy or options.return_alternatives:
        raise InputError("generate_tokens needs beam_size=1, and neither prefix_bias_beta nor return_alternatives")
    if options.callback is not None:
        raise InputError("generate_tokens takes no callback: it yields what a callback would get")


def prefix_of_each(target_prefix: Prefixes, texts: Sequence[str]) -> Sequence[str | None]:
    """One prefix for each text."""
    if target_prefix is None or isinstance(target_prefix, str):
        return [target_prefix] * len(texts)
    prefixes = list(check_several("target_prefix", target_prefix))
    if len(prefixes) != len(texts):
        raise InputError(f"target_prefix should be one str, or one for each text: {len(texts)}, not {len(prefixes)}")
    return prefixes


def with_prefixes(texts: Iterable[str], target_prefix: Prefixes) -> Iterator[tuple[str, str | None]]:
    """(text, prefix) pairs; the iterator raises InputError if texts and prefixes differ in number."""
    if target_prefix is None or isinstance(target_prefix, str):
        return ((text, target_prefix) for text in texts)
    return _paired(texts, check_several("target_prefix", target_prefix))


def _paired(texts: Iterable[str], prefixes: Iterable[str | None]) -> Iterator[tuple[str, str | None]]:
    missing: Any = object()
    for count, (text, prefix) in enumerate(zip_longest(texts, prefixes, fillvalue=missing)):
        if text is missing or prefix is missing:
            fewer, more = ("texts", "prefixes") if text is missing else ("prefixes", "texts")
            raise InputError(f"target_prefix should be one str, or one for each text: {count} {fewer}, but more {more}")
        yield text, prefix
