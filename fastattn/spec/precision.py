"""Precisions of the matrix products: the names that callers may give, and what they mean for a checkpoint."""

from dataclasses import replace

from fastattn.errors import InputError, warn
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.quantized import without_input_scales
from fastattn.system.records import dataclass

# "intgemm" is int8 with the checkpoint's static input scales, where it has them, instead of a scale for each row: what
# Marian computes, a little farther from float32. "auto" is int8 where the checkpoint holds int8, else float32.
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
    """The precision of the matrix products.

    name        "float32", "bfloat16", "int8" or "intgemm"
    arithmetic  its name in the operations: "float32", "bfloat16" or "int8"
    variety     a suffix for files of packed weights, different for precisions of the same arithmetic
    """

    name: str

    @property
    def arithmetic(self) -> str:
        return "int8" if self.name == "intgemm" else self.name

    @property
    def variety(self) -> str:
        return "-intgemm" if self.name == "intgemm" else ""

    def applied(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint, without its static input scales unless they are used."""
        if self.name == "intgemm":
            return checkpoint
        return replace(checkpoint, tensors=without_input_scales(checkpoint.tensors))


def resolve_precision(precision: str, checkpoint: Checkpoint) -> Precision:
    """The Precision of that name, "auto" decided by the checkpoint. Raises InputError for an unknown name.

    CTranslate2's other names are accepted; a UserWarning says what they run as. An encoder alone has no static input
    scales, so intgemm is int8 there.
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
