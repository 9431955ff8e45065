"""Writes vision.npz: what the modules of bench.torch_vision make of the images of tests/images/cases.py.

Run from the root, in an environment with torch: python -m tests.goldens.make_vision
"""

import numpy as np
import torch

from bench import torch_residual, torch_vision
from tests.architectures.goldens import pack_shapes
from tests.images.cases import MODULE_CASES, MODULES_FILE, draw_state, images_of


def main() -> None:
    written, shapes = {"versions": np.array(f"torch {torch.__version__}")}, {}
    for number, case in enumerate(MODULE_CASES):
        name, *arguments = case.twin
        twin = getattr(torch_vision, name, None) or getattr(torch_residual, name)
        twin = twin(*arguments).eval()
        shapes[str(number)] = {name: tuple(one.shape) for name, one in twin.state_dict().items()}
        drawn = {name: torch.from_numpy(array) for name, array in draw_state(shapes[str(number)]).items()}
        twin.load_state_dict(drawn, strict=False)  # not the counts of batches
        images = torch.from_numpy(images_of(case))
        with torch.no_grad():
            written |= {str(number): twin(images).numpy()}
            written |= {f"{number}{view}": getattr(twin, view)(images).numpy() for view in case.views}
    np.savez_compressed(MODULES_FILE, shapes=pack_shapes(shapes), **written)


if __name__ == "__main__":
    main()
