"""Every kind of encoder-decoder at three sizes against Hugging Face transformers, where that is installed."""

from pathlib import Path

import pytest

from bench.t5_cases import T5_CASES
from bench.translator_cases import CASES
from bench.translator_models import TranslatorCase, build, make_texts

pytest.importorskip("torch")
pytest.importorskip("transformers")


@pytest.mark.parametrize("case", CASES + T5_CASES, ids=lambda case: case.name)
def test_ids_logits_and_searches_are_those_of_transformers(case: TranslatorCase, tmp_path: Path) -> None:
    from bench.translator_comparison import agreement

    build(tmp_path, case, (CASES if case in CASES else T5_CASES).index(case))
    found = agreement(tmp_path, case, make_texts(30, 3))
    assert found.whole, found
