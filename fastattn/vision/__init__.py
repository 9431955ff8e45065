"""Images: captions, maps of attention and of saliency drawn over pictures."""

from fastattn.vision.captioner import Caption, Captioner
from fastattn.vision.maps import ImageMaps, plot_image_attention
from fastattn.vision.saliency import saliency

__all__ = ["Caption", "Captioner", "ImageMaps", "plot_image_attention", "saliency"]
