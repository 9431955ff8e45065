"""What translators that are made of others have in common."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fastattn.errors import InputError
from fastattn.translation.detecting import DetectingTranslator
from fastattn.translation.glossary import GlossaryTranslator
from fastattn.translation.guarded import GuardedTranslator
from fastattn.translation.memory import CachedTranslator, MemoryTranslator

MADE: dict[str, Callable[[Any, Path], Any]] = {
    "detecting": lambda translator, path: DetectingTranslator("pt", lambda code: translator),
    "glossary": lambda translator, path: GlossaryTranslator(translator, {"house": "casa"}),
    "guarded": lambda translator, path: GuardedTranslator(translator),
    "memory": lambda translator, path: MemoryTranslator(translator, {"Hi": "Oi"}),
    "cache": lambda translator, path: CachedTranslator(translator, str(path / "cache"), "model"),
}


@pytest.mark.parametrize("name", MADE)
def test_texts_that_are_looked_at_apart_have_the_same_languages(name: str, tmp_path: Path) -> None:
    translator = MADE[name](None, tmp_path)
    for option in ("source_lang", "target_lang", "target_prefix"):
        for values in (["de", "fr"], iter(["de", "fr"])):
            with pytest.raises(InputError, match=f"^{option} should be one str for all texts"):
                translator.translate(["Hi", "Yo"], **{option: values})
