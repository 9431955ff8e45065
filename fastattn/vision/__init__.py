"""Images: captions, maps of attention and of saliency over pictures, and modules of attention to images.

The public names are imported when first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# isort: off
if TYPE_CHECKING:  # a type checker takes names imported without ``as`` for private
    from fastattn.vision.attention import CBAM as CBAM, DynamicCapacity as DynamicCapacity
    from fastattn.vision.attention import MultiScaleAttention as MultiScaleAttention, PatchAttention as PatchAttention
    from fastattn.vision.attention import ResidualAttention as ResidualAttention, SelectiveKernel as SelectiveKernel
    from fastattn.vision.attention import SpatialTransformer as SpatialTransformer
    from fastattn.vision.attention import SqueezeExcitation as SqueezeExcitation
    from fastattn.vision.captioner import Caption as Caption, Captioner as Captioner
    from fastattn.vision.maps import ImageMaps as ImageMaps, saliency as saliency
    from fastattn.vision.maps import plot_image_attention as plot_image_attention
# isort: on

_NAMES = {
    "attention": "CBAM DynamicCapacity MultiScaleAttention PatchAttention ResidualAttention SelectiveKernel "
    "SpatialTransformer SqueezeExcitation",
    "captioner": "Caption Captioner",
    "maps": "ImageMaps plot_image_attention saliency",
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:
    __all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'fastattn.vision' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fastattn.vision.{_MODULES[name]}"), name)
    return value
