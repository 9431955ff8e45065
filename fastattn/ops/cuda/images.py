"""Operations on images, which the CPU alone has."""

import functools
from collections.abc import Callable
from typing import Any

from fastattn.errors import InputError
from fastattn.ops.reference import images


def _refused(operation: Callable) -> Callable:
    @functools.wraps(operation)
    def refuse(*given: Any, **named: Any) -> None:
        raise InputError('images are computed on device "cpu" alone')

    return refuse


convolve, convolve_depthwise = _refused(images.convolve), _refused(images.convolve_depthwise)
pool_windows, pool_areas = _refused(images.pool_windows), _refused(images.pool_areas)
sample_pixels, gate_pixels = _refused(images.sample_pixels), _refused(images.gate_pixels)
