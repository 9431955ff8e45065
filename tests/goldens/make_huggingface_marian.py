"""Writes huggingface_marian.npz: what transformers makes of the models of tests/weights/huggingface/marian_cases.py.

Run where torch, transformers, sentencepiece and fastattn are installed, from the repository's root:
python -m tests.goldens.make_huggingface_marian. Beams are searched as those do who made the models: without the padding
token in the probabilities (renormalize_logits), and until as many hypotheses have ended as there are beams. No two
tokens come twice in a row, or random models would say little else.
"""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.weights.huggingface.marian_cases import CASES, TEXTS, MarianCase, forced_ids, write_model

HERE = Path(__file__).resolve().parent


def run(case: MarianCase, folder: Path) -> dict[str, np.ndarray]:
    write_model(folder, case)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    model, notes = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(notes.values()), notes
    model = model.double().eval()
    source = [tokenizer(text)["input_ids"] for text in TEXTS]
    logits, results = [], {"greedy": [], "beam": []}
    forced = torch.tensor([forced_ids(case)])
    for ids in source:
        inputs = torch.tensor([ids])
        with torch.inference_mode():
            logits.append(model(input_ids=inputs, decoder_input_ids=forced).logits[0].numpy())
            for name, beams in (("greedy", 1), ("beam", 4)):
                found = model.generate(
                    inputs, num_beams=beams, max_length=30, early_stopping=True, length_penalty=1.0, do_sample=False,
                    renormalize_logits=True, no_repeat_ngram_size=2,
                )[0].tolist()  # fmt: skip
                results[name].append(found)
    decoded = [tokenizer.decode(ids, skip_special_tokens=True, use_source_tokenizer=False) for ids in results["greedy"]]
    text = {"source": source, "decoded": decoded, **results}
    return {"logits": np.stack(logits).astype(np.float32), "text": np.array(json.dumps(text))}


def main() -> None:
    warnings.simplefilter("ignore")  # sacremoses is left out on purpose
    made = f"transformers {transformers.__version__}, torch {torch.__version__}, numpy {np.__version__}"
    written = {"versions": np.array(made)}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in CASES.items():
            for key, value in run(case, Path(folder) / name).items():
                written[f"{name}.{key}"] = value
            print(name, json.loads(str(written[f"{name}.text"])))  # noqa: T201
    np.savez_compressed(HERE / "huggingface_marian.npz", **written)


if __name__ == "__main__":
    main()
