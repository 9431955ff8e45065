"""Makes pytorch_{zip,zip4,stream}.bin: what torch.save writes of the tensors that containers/test_pytorch.py expects.

Run where torch is installed, from the repository's root: python -m tests.goldens.make_pytorch
"""

from collections import OrderedDict
from pathlib import Path

import torch

HERE = Path(__file__).resolve().parent
FORMS = {"zip": {}, "zip4": {"pickle_protocol": 4}, "stream": {"_use_new_zipfile_serialization": False}}


def state_dict() -> OrderedDict:
    base = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    state = torch.nn.Linear(3, 2).state_dict()  # its attribute _metadata goes along
    state.clear()
    state["base"] = base
    state["again"] = base
    state["rows"] = base[1:3]
    state["transposed"] = base.t()
    state["every other"] = base[::2, 1::2]
    state["parameter"] = torch.nn.Parameter(torch.tensor([[1.5, -2.0]]))
    state["half"] = torch.tensor([1.5, -2.0, 65504.0], dtype=torch.float16)
    state["bfloat16"] = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, -6.5]], dtype=torch.bfloat16).t()
    state["double"] = torch.tensor([0.1], dtype=torch.float64)
    state["scalar"] = torch.tensor(7.0)
    state["empty"] = torch.zeros(0, 5)
    state["integers"] = torch.arange(3)
    state["flags"] = torch.tensor([True, False])
    return state


if __name__ == "__main__":
    for form, options in FORMS.items():
        torch.save(state_dict(), HERE / f"pytorch_{form}.bin", **options)
