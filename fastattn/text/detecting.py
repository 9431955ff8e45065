"""Which language a text is in, by py3langid (Lui and Baldwin 2012): 97 languages, since version 0.4 139."""

from collections.abc import Sequence
from functools import cache
from typing import Any

from fastattn.errors import InputError
from fastattn.text.languages import iso_code

NO_LANGUAGE = "zxx"  # of numbers, markup and the like, since py3langid 0.4


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        raise InputError("finding a text's language needs py3langid: pip install 'fastattn[detect]'") from None

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def likely_languages(text: str, among: Sequence[str] = (), most: int = 5) -> list[tuple[str, float]]:
    """(code as of ``iso_code``, or NO_LANGUAGE, and probability) of the likeliest languages, most likely first.

    among  these alone, if given, each with its probability among all: a text in none of them has low ones; a language
           that the model does not know has 0
    """
    ranked = [(iso_code(str(code)), float(share)) for code, share in _identifier().rank(text)]
    if among:
        shares = dict(ranked)
        ranked = sorted(((code, shares.get(code, 0.0)) for code in among), key=lambda one: -one[1])
    return ranked[:most]
