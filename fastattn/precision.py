"""In which numbers products run: what a caller may ask for, and what that comes to for a checkpoint."""

from dataclasses import dataclass, replace

from fastattn.caller_warnings import warn
from fastattn.checkpoint import Checkpoint
from fastattn.errors import InputError
from fastattn.quantized import without_input_scales

# "intgemm" is int8 with the checkpoint's own scales of inputs, where it has them, in place of each row's: what Marian
# computes, a little farther from float32. "auto" is int8 where the checkpoint holds int8, else float32.
PRECISIONS = ("float32", "bfloat16", "int8", "intgemm", "auto")
# CTranslate2's other names -> what they run as, never less exact than what was asked for: bfloat16 has 8 significant
# bits, float16 has 11. What is not a product is float32 here, so those in _MORE_EXACT are not quite what they say.
_FOREIGN = {
    "default": "auto",
    "float16": "float32",
    "int16": "float32",
    "int8_float32": "int8",
    "int8_float16": "int8",
    "int8_bfloat16": "int8",
}
_MORE_EXACT = ("float16", "int16", "int8_float16", "int8_bfloat16")


@dataclass(frozen=True)
class Precision:
    """What products run in.

    name        "float32", "bfloat16", "int8" or "intgemm"
    arithmetic  the operations' word for it: "float32", "bfloat16" or "int8"
    variety     tells apart what is packed for another precision of the same arithmetic
    """

    name: str

    @property
    def arithmetic(self) -> str:
        return "int8" if self.name == "intgemm" else self.name

    @property
    def variety(self) -> str:
        return "-intgemm" if self.name == "intgemm" else ""

    def applied(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint with its scales of inputs if they are to be used, else without them."""
        if self.name == "intgemm":
            return checkpoint
        return replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))


def resolve_precision(precision: str, checkpoint: Checkpoint) -> Precision:
    """What products run in: ``precision``, with "auto" decided by the checkpoint. Raises InputError for another.

    CTranslate2's names of others are taken too; a UserWarning says what they run as. An encoder alone has no scales of
    inputs, so intgemm is int8 there.
    """
    asked = precision
    if asked in tuple(_FOREIGN):
        precision = _FOREIGN[asked]
    if asked in _MORE_EXACT:
        rest = "" if precision == "float32" else ", all but its products as float32"
        warn(f"precision {asked!r} runs as {precision!r}{rest}, which is no less exact")
    if precision not in PRECISIONS:
        raise InputError(f"unknown precision {precision!r}; known: {', '.join(PRECISIONS)}")
    if precision == "auto":
        precision = "int8" if checkpoint.precision == "int8" else "float32"
    if precision == "intgemm" and checkpoint.spec.decoder is None:
        precision = "int8"
    return Precision(precision)
