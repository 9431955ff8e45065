"""Makes recurrent.npz: rows and last states of torch.nn.LSTM and torch.nn.GRU for the stacks of recurrent_cases.

Run where torch is installed, from the repository's root: python -m tests.goldens.make_recurrent
"""

from pathlib import Path

import numpy as np
import torch

from bench.operations.table import starts_of
from tests.kernels.recurrent_cases import NUMBER, DrawnStack, draw

MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


@torch.inference_mode()
def outputs(stack: DrawnStack) -> tuple[np.ndarray, np.ndarray]:
    """What ``recurrent_cases.run`` returns; sentences one by one."""
    width, both = stack.x_ND.shape[1], stack.directions == 2
    module = MODULES[stack.cell](width, stack.units, len(stack.tensors), batch_first=True, bidirectional=both)
    named = {
        f"{name}_l{n}{suffix}": torch.from_numpy(value)
        for n, layer in enumerate(stack.tensors)
        for suffix, tensors in zip(("", "_reverse"), layer)
        for name, value in tensors.items()
    }
    module.load_state_dict(named)
    rows, states, starts_B1 = [], [], starts_of(stack.lengths)
    for start, end in zip(starts_B1, starts_B1[1:]):
        row, last = module(torch.from_numpy(stack.x_ND[None, start:end]))
        parts = [part.reshape(len(stack.tensors), -1) for part in (last if stack.cell == "lstm" else (last,))]
        rows.append(row[0].numpy())
        states.append(torch.cat(parts, dim=1).numpy().reshape(-1))
    return np.concatenate(rows), np.stack(states)


if __name__ == "__main__":
    found = {"torch": np.array(torch.__version__)}
    for seed in range(NUMBER):
        found[f"rows_{seed}"], found[f"states_{seed}"] = outputs(draw(seed))
    np.savez_compressed(Path(__file__).resolve().parent / "recurrent.npz", **found)
