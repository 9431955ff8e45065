"""Qwen 3's rerankers through CrossEncoder: scores by their card's code in transformers, from any kind of folder."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.encoders.cross_encoder import CrossEncoder
from fastattn.encoders.text_classifier import TextClassifier
from fastattn.encoders.yes_or_no import PROMPT, prompts_of
from fastattn.errors import CheckpointError, InputError
from fastattn.generation.generator import Generator
from fastattn.weights import read
from tests import GOLDENS
from tests.cli.commands import succeed
from tests.generation.language_models import checkpoint
from tests.goldens.make_reranker import INSTRUCTIONS, PAIRS, PREFIX, SUFFIX
from tests.weights.native.folders import converted


@pytest.fixture(scope="module")
def golden() -> dict[str, np.ndarray]:
    with np.load(GOLDENS / "reranker.npz") as stored:
        return dict(stored)


@pytest.fixture(scope="module")
def folder(golden: dict[str, np.ndarray], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reranker")
    for name, content in golden.items():
        if name.endswith(": file"):
            (folder / name.removesuffix(": file")).write_bytes(content.tobytes())
    return folder


def test_scores_are_those_of_the_card(golden: dict[str, np.ndarray], folder: Path) -> None:
    encoder = CrossEncoder(folder)
    assert (encoder.max_length, encoder.num_labels) == (400, 1)
    scores = encoder.predict(PAIRS)
    np.testing.assert_allclose(scores, golden["scores"][0], atol=1e-5)
    np.testing.assert_allclose(encoder.predict(PAIRS, prompt=INSTRUCTIONS[1]), golden["scores"][1], atol=1e-5)
    assert [encoder.predict(pair) for pair in PAIRS] == scores.tolist()
    ranked = encoder.rank(PAIRS[0][0], [document for _, document in PAIRS])
    assert [entry["score"] for entry in ranked] == sorted((entry["score"] for entry in ranked), reverse=True)
    prompted = encoder._prompted(PAIRS, encoder.prompts["query"])
    read_ids = prompts_of(prompted, PROMPT, encoder._tokenizer, 1)
    assert [min(count, 400) for count in encoder.count_pair_tokens(PAIRS)] == [len(ids) for ids in read_ids]
    again = CrossEncoder(folder)  # perhaps as it was kept
    assert again.predict(PAIRS).tolist() == scores.tolist()
    own = converted(read(folder), folder.parent / "own", "float32")
    assert CrossEncoder(own, yes_or_no=True).predict(PAIRS).tolist() == scores.tolist()


def test_a_score_is_the_odds_of_yes_in_the_language_model(folder: Path) -> None:
    generator, encoder = Generator(folder, "float32"), CrossEncoder(folder, "float32")
    assert (PROMPT.before, PROMPT.after) == (PREFIX, SUFFIX)
    tokenizer = generator._tokenizer
    (query, document), (yes, no) = PAIRS[0], tokenizer.known_ids(["yes", "no"])
    asked = f"{PREFIX}<Instruct>: {INSTRUCTIONS[0]}\n<Query>: {query}\n<Document>: {document}{SUFFIX}"
    (ids,) = tokenizer.encode([asked], False)
    of_yes, of_no = (generator.score([*ids, answer]).log_probs[-1] for answer in (yes, no))
    assert encoder.predict((query, document), activation_fn="none") == pytest.approx(of_yes - of_no, abs=1e-4)


def test_the_command_ranks(folder: Path) -> None:
    table = succeed("rerank", "-m", str(folder), "What?", "a", "the b", "c")
    assert [line.split("\t")[0] for line in table.splitlines()] == ["1", "2", "3"]


def test_another_language_model_is_no_reranker(folder: Path) -> None:
    with pytest.raises(CheckpointError, match="a classifier is expected: the checkpoint has no head"):
        CrossEncoder.from_checkpoint(checkpoint())
    with pytest.raises(CheckpointError, match=r"Qwen3ForCausalLM.* has no head that classifies"):
        TextClassifier(folder)


def test_a_language_model_that_says_nothing_of_it_is_a_reranker_where_asked(folder: Path, tmp_path: Path) -> None:
    plain = shutil.copytree(folder, tmp_path / "x" / "y" / "z" / "w" / "chat")
    with pytest.raises(CheckpointError, match='a reranker is expected: nothing in the names .* says "rerank"; where'):
        CrossEncoder(plain)
    scores = CrossEncoder(plain, yes_or_no=True).predict(PAIRS)
    assert scores.tolist() == CrossEncoder(shutil.copytree(plain, tmp_path / "My-ReRanker")).predict(PAIRS).tolist()
    with pytest.raises(CheckpointError, match="a reranker is expected"):  # as it was kept
        CrossEncoder(plain)
    with pytest.raises(InputError, match="yes_or_no must be True or False"):
        CrossEncoder(plain, yes_or_no=1)


OF_ROLE = 'messages | selectattr("role", "eq", "{}") | map(attribute="content") | first'.format
TEMPLATE = (
    f"{PREFIX}<Instruct>: {{{{ {OF_ROLE('system')} | default('{INSTRUCTIONS[1]}') }}}}\n"
    f"<Query>: {{{{ {OF_ROLE('query')} }}}}\n<Document>: {{{{ {OF_ROLE('document')} }}}}{SUFFIX}{{{{ '' }}}}"
)


def write_modules(folder: Path, plain: Path, tokens: dict[str, Any], template: str = TEMPLATE, **top: Any) -> Path:
    """The folder as sentence-transformers 6 writes it."""
    shutil.copytree(plain, folder)
    path = "sentence_transformers.{}".format
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": path("base.modules.transformer.Transformer")},
        {"idx": 1, "name": "1", "path": "1", "type": path("cross_encoder.modules.logit_score.LogitScore")},
    ]
    files = {
        "modules.json": modules,
        "1/config.json": {**tokens, "module_input_name": "causal_logits"},
        "config_sentence_transformers.json": {"model_type": "CrossEncoder", **top},
        "sentence_bert_config.json": {"transformer_task": "text-generation", "module_output_name": "causal_logits"},
    }
    (folder / "1").mkdir()
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    return folder


YES, NO = 257, 258


def test_sentence_transformers_modules_with_their_template(
    golden: dict[str, np.ndarray], folder: Path, tmp_path: Path
) -> None:
    tokens = {"true_token_id": YES, "false_token_id": NO}
    prompts = {"prompts": {"search": INSTRUCTIONS[0]}, "default_prompt_name": "search"}
    encoder = CrossEncoder(write_modules(tmp_path / "a", folder, tokens, **prompts), "float32")
    np.testing.assert_allclose(encoder.predict(PAIRS), golden["scores"][0], atol=1e-5)
    np.testing.assert_allclose(encoder.predict(PAIRS, prompt=INSTRUCTIONS[1]), golden["scores"][1], atol=1e-5)
    swapped = {"true_token_id": NO, "false_token_id": YES}
    own = CrossEncoder(write_modules(tmp_path / "b", folder, swapped), "float32")  # the template's instruction
    np.testing.assert_allclose(1 - own.predict(PAIRS), golden["scores"][1], atol=1e-5)


def test_modules_that_are_refused(folder: Path, tmp_path: Path) -> None:
    tokens = {"true_token_id": 1, "false_token_id": 0}
    for number, (given, template, message) in enumerate(
        (
            ({"true_token_id": YES}, TEMPLATE, "LogitScore needs a text-generation Transformer and two tokens"),
            (tokens | {"true_token_id": 10**9}, TEMPLATE, "should be of the vocabulary, are (1000000000, 0)"),
            (tokens, "", "LogitScore needs a chat template of query and document"),
            (tokens, "{{ messages[0].content }}", "should have instruction, query and document once, in order"),
            (
                tokens,
                "{% for m in messages %}{{ m.role }}:{{ m.content }};{% endfor %}",
                "the chat template has no instruction of its own, nor is a prompt named",
            ),
        )
    ):
        with pytest.raises(CheckpointError) as caught:
            CrossEncoder(write_modules(tmp_path / str(number), folder, given, template))
        assert message in str(caught.value)
