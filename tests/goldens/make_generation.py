"""Writes generation.json: what transformers makes of a model by the settings of its generation_config.json.

Run where torch, transformers, sentencepiece and fastattn's dependencies are installed, from the repository's root:
python -m tests.goldens.make_generation
"""

import json
import tempfile
import warnings
from pathlib import Path

import torch
import transformers

from tests.decoding.generation_cases import CASE, SETTINGS, generation_config
from tests.weights.huggingface.marian_cases import TEXTS, write_model

HERE = Path(__file__).resolve().parent


def main() -> None:
    warnings.simplefilter("ignore")
    written: dict = {"versions": f"transformers {transformers.__version__}, torch {torch.__version__}"}
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder), CASE)
        for name in SETTINGS:
            (Path(folder) / "generation_config.json").write_text(json.dumps(generation_config(name)))
            tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
            model = transformers.MarianMTModel.from_pretrained(folder).double().eval()
            written[name] = []
            for text in TEXTS:
                with torch.inference_mode():
                    inputs = torch.tensor([tokenizer(text)["input_ids"]])
                    out = model.generate(inputs, return_dict_in_generate=True, output_scores=True)
                score = float(out.sequences_scores[0]) if "sequences_scores" in out else None
                written[name].append([inputs[0].tolist(), out.sequences[0].tolist(), score])
    (HERE / "generation.json").write_text(json.dumps(written) + "\n")


if __name__ == "__main__":
    main()
