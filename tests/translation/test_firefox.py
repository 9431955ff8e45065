"""Firefox's own models, pulled: the translations are those of translateLocally, which runs them with intgemm."""

import numpy as np
import pytest

from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.translation.translator import Translator
from fastattn.weights import read

# What translateLocally v0.0.2 writes with these models, its engine being Marian's and its sentences split.
EXPECTED = {
    "en-pt": {
        "Hello world": "Olá, mundo!",
        "The children cannot go to school because of the rain.": "As crianças não podem ir à escola por causa da "
        "chuva.",
        "How many people live in Lisbon?": "Quantas pessoas vivem em Lisboa?",
        "She said that 3,500 books were sold in 1998.": "Ela disse que 3.500 livros foram vendidos em 1998.",
        # Were it one sentence to the model, some words would be others.
        "The old bridge was closed last week. Nobody knows when it will open again. It costs two euros, but children "
        "travel free.": "A antiga ponte foi fechada na semana passada. Ninguém sabe quando vai abrir novamente. Custa "
        "dois euros, mas as crianças viajam gratuitamente.",
    },
    "pt-en": {
        "Olá mundo": "Hello world",
        "As crianças não podem ir à escola por causa da chuva.": "Children can't go to school because of the rain.",
        "A ponte velha foi fechada na semana passada.": "The old bridge was closed last week.",
        "Quantas pessoas vivem em Lisboa?": "How many people live in Lisbon?",
    },
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_firefox_model_translates_as_in_firefox_with_its_scales(pulled, name):
    checkpoint: Checkpoint = read(pulled(name))
    assert isinstance(checkpoint.text, TranslationText) and checkpoint.spec.decoder is not None
    assert f"{checkpoint.text.source_language}-{checkpoint.text.target_language}" == name
    assert (checkpoint.spec.decoder.recurrence.kind, checkpoint.precision) == ("ssru", "int8")
    assert checkpoint.shortlist is not None
    texts = list(EXPECTED[name])
    assert Translator(pulled(name), "intgemm").translate(texts, beam_size=1) == list(EXPECTED[name].values())


def test_the_scales_of_inputs_are_used_where_asked_for_and_kept_apart_in_the_cache(pulled):
    """Log-probabilities of both kinds are near float32's, those of each row's own scale nearer."""
    pairs = list(EXPECTED["en-pt"].items())
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))

    def log_probs(precision: str) -> np.ndarray:
        scores = Translator(pulled("en-pt"), precision).score(sources, targets)
        return np.concatenate([score.log_probs for score in scores])

    exact, rows, intgemm = (log_probs(precision) for precision in ("float32", "int8", "intgemm"))
    near, farther = (float(np.sqrt(np.mean((found - exact) ** 2))) for found in (rows, intgemm))
    assert 0 < near < farther < 0.5
    np.testing.assert_array_equal(log_probs("int8"), rows)  # from the packed weights now
    np.testing.assert_array_equal(log_probs("intgemm"), intgemm)


def test_an_unknown_word_is_written_only_where_asked_for(pulled):
    translator = Translator(pulled("en-pt"))
    unknown = translator.score_tokens([["▁Hello"]], [["<unk>"]])[0]
    assert np.isfinite(unknown.log_probs).all()
    never = {"beam_size": 1, "max_decoding_length": 3, "target_prefix": [["▁"]]}
    assert translator.translate_tokens([["▁漢"]], **never)[0].hypotheses[0].count("<unk>") == 0
