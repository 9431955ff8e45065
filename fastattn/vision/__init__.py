"""Images: captions, maps of attention and of saliency drawn over pictures, and modules of attention to images.

The public names are imported when first used: an Encoder needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

# isort: off
if TYPE_CHECKING:  # by these very names: a checker takes others for private
    from fastattn.vision.captioner import Caption as Caption, Captioner as Captioner
    from fastattn.vision.channel import (
        CBAM as CBAM,
        SelectiveKernel as SelectiveKernel,
        SqueezeExcitation as SqueezeExcitation,
    )
    from fastattn.vision.features import (
        MultiScaleAttention as MultiScaleAttention,
        PatchAttention as PatchAttention,
        ResidualAttention as ResidualAttention,
    )
    from fastattn.vision.maps import ImageMaps as ImageMaps, plot_image_attention as plot_image_attention
    from fastattn.vision.occlusion import saliency as saliency
    from fastattn.vision.spatial import DynamicCapacity as DynamicCapacity, SpatialTransformer as SpatialTransformer
# isort: on

_NAMES = {
    "captioner": "Caption Captioner",
    "channel": "CBAM SelectiveKernel SqueezeExcitation",
    "features": "MultiScaleAttention PatchAttention ResidualAttention",
    "maps": "ImageMaps plot_image_attention",
    "occlusion": "saliency",
    "spatial": "DynamicCapacity SpatialTransformer",
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names.split()}

if not TYPE_CHECKING:
    __all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'fastattn.vision' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"fastattn.vision.{_HOMES[name]}"), name)
    return value
