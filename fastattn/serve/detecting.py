"""Which language a text is in, by py3langid (Lui and Baldwin 2012): 97 languages, a model of 4.6 MB in its package."""

from collections.abc import Sequence
from functools import cache
from typing import Any


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def likely_languages(text: str, among: Sequence[str] = (), most: int = 5) -> list[tuple[str, float]]:
    """(ISO 639-1 code, probability) of the likeliest languages, most likely first, ``among`` these alone if given.

    Of languages that are not known, and of text without letters, nothing is likelier than the rest.
    """
    ranked = [(str(code), float(share)) for code, share in _identifier().rank(text)]
    if among:
        shares = dict(ranked)
        total = sum(shares.get(code, 0.0) for code in among)
        ranked = [(code, shares.get(code, 0.0) / total if total else 1 / len(among)) for code in among]
        ranked.sort(key=lambda one: -one[1])
    return ranked[:most]
