"""Images: pictures and what models take of them, captions."""

from fastattn.vision.captioner import Caption, Captioner

__all__ = ["Caption", "Captioner"]
