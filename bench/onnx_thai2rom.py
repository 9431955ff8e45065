"""PyThaiNLP's thai2rom by ONNX Runtime: what its own program computes."""

import json
from pathlib import Path

import numpy as np
import onnxruntime

START, END, LONGEST = 1, 2, 100


class Thai2Rom:
    """The two files by ONNX Runtime, greedy, without the program's end of a cycle."""

    def __init__(self, folder: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # the decoder's stated sizes are not those that come
        paths = (str(folder / f"thai2rom_{stack}.onnx") for stack in ("encoder", "decoder"))
        self.encoder, self.decoder = (onnxruntime.InferenceSession(path, options) for path in paths)
        self.tables = json.loads((folder / "thai2rom_loader_onnx.json").read_text(encoding="utf-8"))

    def __call__(self, text: str) -> str:
        table = self.tables["char_to_ix"]
        ids = np.array([[*(table.get(character, table["<UNK>"]) for character in text), table["<end>"]]], np.int64)
        rows, states, _ = self.encoder.run(None, {"input_tensor": ids, "input_lengths": [ids.shape[1]]})
        hidden, last, result = np.concatenate(list(states), 1)[None], START, ""
        mask = np.ones(ids.shape, bool).tolist()
        for _ in range(LONGEST):
            inputs = {"decoder_input": np.array([[last]], np.int32), "decoder_hidden_1": hidden}
            logits, hidden, _ = self.decoder.run(None, inputs | {"encoder_outputs": rows, "mask": mask})
            last = int(logits.argmax())
            if last == END:
                break
            result += self.tables["ix_to_target_char"][str(last)]
        return result
