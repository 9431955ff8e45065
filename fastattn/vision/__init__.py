"""Images: captions, maps of attention and of saliency drawn over pictures, and modules of attention to images."""

from fastattn.vision.captioner import Caption, Captioner
from fastattn.vision.channel import CBAM, SelectiveKernel, SqueezeExcitation
from fastattn.vision.features import MultiScaleAttention, PatchAttention, ResidualAttention
from fastattn.vision.maps import ImageMaps, plot_image_attention
from fastattn.vision.saliency import saliency
from fastattn.vision.spatial import DynamicCapacity, SpatialTransformer

__all__ = [
    "CBAM",
    "Caption",
    "Captioner",
    "DynamicCapacity",
    "ImageMaps",
    "MultiScaleAttention",
    "PatchAttention",
    "ResidualAttention",
    "SelectiveKernel",
    "SpatialTransformer",
    "SqueezeExcitation",
    "plot_image_attention",
    "saliency",
]
