"""Writes what torch's own modules compute of random weights and rows, and files as torch.save writes them.

multi_head.{npz,bin}    torch.nn.MultiheadAttention, and the state dict of one of them
recurrent.npz           rows and last states of torch.nn.LSTM and torch.nn.GRU for the stacks of recurrent_cases
vision.npz              the modules of bench.torch_vision, of the images of tests/images/cases.py
pytorch_*.bin           the tensors that tests/weights/containers/test_pytorch.py expects
"""

from collections import OrderedDict

import numpy as np
import torch

from bench import torch_residual, torch_vision
from bench.operations.table import starts_of
from tests import GOLDENS
from tests.architectures.goldens import pack_shapes
from tests.goldens.writing import write_arrays
from tests.images.cases import MODULE_CASES, ModuleCase, draw_state, images_of
from tests.kernels.recurrent_cases import NUMBER, DrawnStack, draw

WIDTH, HEADS, BATCH, QUERIES, KEYS = 12, 3, 2, 5, 7
# Name -> (arguments of the module, width of the memory; 0: it attends to itself).
HEAD_CASES = {"itself": ({}, 0), "no_bias": ({"bias": False}, WIDTH), "memory": ({"kdim": 8, "vdim": 8}, 8)}
MODULES = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}
FORMS = {"zip": {}, "zip4": {"pickle_protocol": 4}, "stream": {"_use_new_zipfile_serialization": False}}


def multi_head(seed: int, arguments: dict, width: int) -> dict[str, np.ndarray]:
    """The state, the inputs, the mask of keys that are padding, the output and weights of each head."""
    torch.manual_seed(seed)
    module = torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, **arguments).eval()
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):  # zeros at first
            torch.nn.init.normal_(parameter)
    x = torch.randn(BATCH, QUERIES, WIDTH)
    memory = torch.randn(BATCH, KEYS, width) if width else x
    padding = torch.arange(memory.shape[1]) >= torch.tensor([[memory.shape[1]], [3]])
    out, weights = module(x, memory, memory, key_padding_mask=padding, average_attn_weights=False)
    state = {f"state.{name}": tensor for name, tensor in module.state_dict().items()}
    named = state | {"x": x, "padding": padding, "out": out, "weights": weights} | ({"memory": memory} if width else {})
    if "kdim" in arguments:
        torch.save(module.state_dict(), GOLDENS / "multi_head.bin")
    return {name: tensor.numpy() for name, tensor in named.items()}


def recurrent(stack: DrawnStack) -> tuple[np.ndarray, np.ndarray]:
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


def drawn(module: torch.nn.Module) -> tuple[torch.nn.Module, dict[str, tuple[int, ...]]]:
    """The module with the weights of images.cases, and their shapes."""
    shapes = {name: tuple(one.shape) for name, one in module.state_dict().items()}
    state = {name: torch.from_numpy(array) for name, array in draw_state(shapes).items()}
    module.load_state_dict(state, strict=False)  # not the counts of batches
    return module.eval(), shapes


def vision(case: ModuleCase) -> tuple[dict[str, np.ndarray], dict[str, tuple[int, ...]]]:
    """({view, empty for the output: numbers}, shapes of the tensors)."""
    name, *arguments = case.twin
    twin, shapes = drawn((getattr(torch_vision, name, None) or getattr(torch_residual, name))(*arguments))
    images = torch.from_numpy(images_of(case))
    found = {"": twin(images)} | {view: getattr(twin, view)(images) for view in case.views}
    return {view: one.numpy() for view, one in found.items()}, shapes


def saved() -> OrderedDict:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = torch.nn.Linear(3, 2).state_dict()  # its attribute _metadata goes along
    state.clear()
    bfloat16 = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.5]], dtype=torch.bfloat16)
    state |= {"base": base, "again": base, "rows": base[1:3], "transposed": base.t(), "every other": base[::2, 1::2]}
    state["parameter"] = torch.nn.Parameter(torch.tensor([[1.5, -2.0]]))
    state |= {"half": torch.tensor([1.5, -2.0, 65504.0], dtype=torch.float16), "bfloat16": bfloat16.t()}
    state |= {"double": torch.tensor([0.1], dtype=torch.float64), "scalar": torch.tensor(7.0)}
    state |= {"empty": torch.zeros(0, 5), "integers": torch.arange(3), "flags": torch.tensor([True, False])}
    return state


if __name__ == "__main__":
    for form, options in FORMS.items():
        torch.save(saved(), GOLDENS / f"pytorch_{form}.bin", **options)
    with torch.no_grad():
        heads = {name: multi_head(seed, *case) for seed, (name, case) in enumerate(HEAD_CASES.items())}
        stacks = {seed: recurrent(draw(seed)) for seed in range(NUMBER)}
        modules = [vision(case) for case in MODULE_CASES]
    found = {f"{case}/{name}": array for case, arrays in heads.items() for name, array in arrays.items()}
    write_arrays("multi_head", found, torch)
    pairs = [(f"{what}_{seed}", one) for seed, both in stacks.items() for what, one in zip(("rows", "states"), both)]
    write_arrays("recurrent", dict(pairs), torch)
    views = {f"{number}{view}": one for number, (found, _) in enumerate(modules) for view, one in found.items()}
    shapes = pack_shapes({str(number): shapes for number, (_, shapes) in enumerate(modules)})
    write_arrays("vision", {"shapes": shapes, **views}, torch)
