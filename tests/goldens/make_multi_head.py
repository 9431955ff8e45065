"""Writes multi_head.npz: what torch.nn.MultiheadAttention computes of random weights and rows, and torch's version;
and multi_head.bin: the state dict of one of them, as torch.save writes it.

Run in an environment with torch, from the repository's root: python -m tests.goldens.make_multi_head
"""

from pathlib import Path

import numpy as np
import torch

HERE = Path(__file__).resolve().parent
WIDTH, HEADS, BATCH, QUERIES, KEYS = 12, 3, 2, 5, 7
# Name -> (arguments of the module, width of the memory; 0: it attends to itself).
CASES = {"itself": ({}, 0), "no_bias": ({"bias": False}, WIDTH), "memory": ({"kdim": 8, "vdim": 8}, 8)}


def computed(number: int, arguments: dict, width: int) -> dict[str, np.ndarray]:
    """The state, the inputs, the mask of keys that are padding, the output and weights of each head."""
    torch.manual_seed(number)
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **arguments).eval()
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):  # zeros at first
            torch.nn.init.normal_(parameter)
    x = torch.randn(BATCH, QUERIES, WIDTH)
    memory = torch.randn(BATCH, KEYS, width) if width else x
    padding = torch.arange(memory.shape[1]) >= torch.tensor([[memory.shape[1]], [3]])
    with torch.no_grad():
        out, weights = module(x, memory, memory, key_padding_mask=padding, average_attn_weights=False)
    inputs = {"x": x, "memory": memory} if width else {"x": x}
    state = {f"state.{name}": tensor for name, tensor in module.state_dict().items()}
    named = {**state, **inputs, "padding": padding, "out": out, "weights": weights}
    if arguments.get("kdim"):
        torch.save(module.state_dict(), HERE / "multi_head.bin")
    return {name: tensor.numpy() for name, tensor in named.items()}


def main() -> None:
    arrays = {"torch": np.array(torch.__version__)}
    for number, (case, (arguments, width)) in enumerate(CASES.items()):
        arrays |= {f"{case}/{name}": array for name, array in computed(number, arguments, width).items()}
    np.savez_compressed(HERE / "multi_head.npz", **arrays)


if __name__ == "__main__":
    main()
