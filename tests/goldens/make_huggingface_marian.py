"""Writes what transformers makes of the models of tests/weights/huggingface/marian_cases.py (huggingface_marian.npz),
and of one by the settings of its generation_config.json (generation.json).

Texts are searched as those do who made the models: without the padding token in the probabilities
(renormalize_logits). No two tokens come twice in a row, or random models would say little else.
"""

import json
import tempfile
import warnings
from pathlib import Path

import numpy as np
import torch
import transformers

from tests.decoding.generation_cases import CASE, SETTINGS, generation_config
from tests.goldens.writing import versions, write_arrays, write_json
from tests.weights.huggingface.marian_cases import CASES, TEXTS, MarianCase, forced_ids, write_model

SEARCH = {
    "max_length": 30, "num_beams": 1, "do_sample": False, "renormalize_logits": True, "no_repeat_ngram_size": 2,
}  # fmt: skip


def opened(folder: Path) -> tuple[transformers.MarianTokenizer, transformers.MarianMTModel]:
    model, notes = transformers.MarianMTModel.from_pretrained(folder, output_loading_info=True)
    assert not any(notes.values()), notes
    return transformers.MarianTokenizer.from_pretrained(folder), model.double().eval()


def run(case: MarianCase, folder: Path) -> dict[str, np.ndarray]:
    tokenizer, model = opened(write_model(folder, case))
    source = [tokenizer(text)["input_ids"] for text in TEXTS]
    forced = torch.tensor([forced_ids(case)])
    logits = [model(input_ids=torch.tensor([ids]), decoder_input_ids=forced).logits[0].numpy() for ids in source]
    greedy = [model.generate(torch.tensor([ids]), **SEARCH)[0].tolist() for ids in source]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True, use_source_tokenizer=False) for ids in greedy]
    text = {"source": source, "decoded": decoded, "greedy": greedy}
    return {"logits": np.stack(logits).astype(np.float32), "text": np.array(json.dumps(text))}


def by_settings(folder: Path, name: str) -> list:
    (folder / "generation_config.json").write_text(json.dumps(generation_config(name)))
    (tokenizer, model), found = opened(folder), []
    for text in TEXTS:
        inputs = torch.tensor([tokenizer(text)["input_ids"]])
        out = model.generate(inputs, return_dict_in_generate=True, output_scores=True)
        score = float(out.sequences_scores[0]) if "sequences_scores" in out else None
        found.append([inputs[0].tolist(), out.sequences[0].tolist(), score])
    return found


@torch.inference_mode()
def main() -> None:
    warnings.simplefilter("ignore")  # sacremoses is left out on purpose
    with tempfile.TemporaryDirectory() as folder:
        made = {name: run(case, Path(folder) / name) for name, case in CASES.items()}
    found = {f"{name}.{key}": value for name, arrays in made.items() for key, value in arrays.items()}
    write_arrays("huggingface_marian", found, transformers, torch)
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), CASE)
        settings = {name: by_settings(Path(folder), name) for name in SETTINGS}
    write_json("generation", {"versions": versions(transformers, torch), **settings})


if __name__ == "__main__":
    main()
