"""MaskedLanguageModel: the tokens for one mask or several, as transformers' pipeline predicts them."""

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fastattn.encoders.masked_language_model import MaskedLanguageModel
from fastattn.errors import CheckpointError
from fastattn.models.kinds import build_model
from fastattn.ops import reference
from fastattn.weights import read
from tests.architectures.cases import GOLDEN_CASES
from tests.encoders.classifiers import MASKED, by_reference, write_masked

slow = partial(by_reference, MaskedLanguageModel)

# without the one that transformers takes the code of from elsewhere
CASES_OF_MASKS = [case.name for case in GOLDEN_CASES if case.task == "fill-mask" and case.model_type != "new"]


def test_tokens_are_the_most_probable(tmp_path: Path) -> None:
    model = slow(write_masked(tmp_path))
    assert (model.mask_token, model.max_length) == ("[MASK]", 40)
    found = model.fill("w5 [MASK] w7", top_k=3)
    plain: Any = build_model(read(tmp_path), reference)
    logits_TV = plain.head(*plain.encode([np.array([2, 5, 4, 7, 3], np.int32)])).astype(np.float64)
    likely = np.exp(logits_TV[2]) / np.exp(logits_TV[2]).sum()
    best = np.argsort(-likely)[:3]
    assert [entry["token"] for entry in found] == best.tolist()
    np.testing.assert_allclose([entry["score"] for entry in found], likely[best], rtol=1e-4)
    for entry in found:
        assert entry["token_str"] == model._tokenizer.token(entry["token"])
        if entry["token"] >= 5:
            assert entry["sequence"] == f"w5 {entry['token_str']} w7"
    whole = model.fill("w5 [MASK] w7", top_k=1000)
    assert len(whole) == 61 and sum(entry["score"] for entry in whole) == pytest.approx(1)


def test_several_masks_are_predicted_one_by_one(tmp_path: Path) -> None:
    model = MaskedLanguageModel.from_checkpoint(read(write_masked(tmp_path)))
    texts = ["[MASK] w8 [MASK]", "w9 [MASK]"]
    found = model.fill(texts)
    assert [len(masks) for masks in found] == [2, 5]
    for mask, place in zip(found[0], (1, 3)):
        for entry in mask:
            words = ["[CLS]", "[MASK]", "w8", "[MASK]", "[SEP]"]
            words[place] = entry["token_str"]
            assert entry["sequence"] == " ".join(words)
    assert model.fill(texts[0]) == found[0]
    assert model.fill(iter(texts)) == found


def test_a_tokenizer_without_a_mask_is_refused(tmp_path: Path) -> None:
    write_masked(tmp_path / "unmasked")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        path = tmp_path / "unmasked" / name
        path.write_text(path.read_text(encoding="utf-8").replace("[MASK]", "[NONE]"), encoding="utf-8")
    config = tmp_path / "unmasked" / "tokenizer_config.json"
    config.write_text(config.read_text(encoding="utf-8").replace("mask_token", "none_token"), encoding="utf-8")
    with pytest.raises(CheckpointError, match="a masked language model is expected: the tokenizer has no mask token"):
        slow(tmp_path / "unmasked")


@pytest.mark.filterwarnings("ignore")  # theirs
def test_tokens_are_those_of_transformers(tmp_path: Path) -> None:
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    for name in CASES_OF_MASKS:
        folder = write_masked(tmp_path / name, name)
        model = slow(folder)
        text = f"w5 {model.mask_token} w7"
        if name == MASKED:
            found = transformers.pipeline("fill-mask", model=str(folder), device="cpu")(text)
            assert [{**entry, "score": 0} for entry in model.fill(text)] == [{**entry, "score": 0} for entry in found]
            np.testing.assert_allclose([e["score"] for e in model.fill(text)], [e["score"] for e in found], atol=1e-5)
        peer = transformers.AutoModelForMaskedLM.from_pretrained(str(folder)).eval()
        (ids,) = model._tokenizer.encode([text])
        with torch.inference_mode():
            logits_V = peer(torch.tensor(ids[None].astype(np.int64))).logits[0, list(ids).index(model._mask)]
        likely = torch.softmax(logits_V, -1).numpy()
        for entry in model.fill(text, top_k=10):
            assert entry["score"] == pytest.approx(float(likely[entry["token"]]), abs=1e-5), name
