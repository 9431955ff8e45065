"""Whole models as plain data: their kind, their stacks (``spec.architecture``), an encoder's head."""

from dataclasses import field

from fastattn.errors import CheckpointError
from fastattn.spec.architecture import ACTIVATIONS, NormSpec, StackSpec, check_counts, check_known
from fastattn.system.records import dataclass

# The rows that a head takes of a sentence: one of them, their mean, or each.
HEAD_ROWS = ("first", "last", "mean", "each")


@dataclass(frozen=True)
class HeadSpec:
    """The layers behind an encoder's last hidden states: perhaps norm(activation(linear(x))), then a linear one."""

    rows: str  # of a sentence, a name in HEAD_ROWS
    outputs: int  # labels, a vocabulary, or a vector's width
    bias: bool = True  # of the last layer
    inner_width: int = 0  # of the first layer; 0: there is none, so no activation and no norm
    inner_bias: bool = True
    activation: str = "tanh"
    norm: NormSpec | None = None  # where it stands does not matter
    padding: int = -1  # of the last row: the id that does not count at a text's end

    def __post_init__(self) -> None:
        check_known("rows of a head", self.rows, HEAD_ROWS)
        check_known("activation of a head", self.activation, ACTIVATIONS)
        check_counts(1, outputs=self.outputs)
        check_counts(0, inner_width=self.inner_width)
        if self.norm is not None and not self.inner_width:
            raise CheckpointError("a head has a norm after its first layer, not without one")


@dataclass(frozen=True)
class ModelSpec:
    """An architecture: its kind, a name in ``fastattn.models.kinds.MODELS``, its stacks, of any kinds, and a head."""

    kind: str
    encoder: StackSpec | None = None
    decoder: StackSpec | None = None
    head: HeadSpec | None = field(default=None, kw_only=True)  # of an encoder alone

    def __post_init__(self) -> None:
        encoder, decoder = self.encoder, self.decoder
        if self.head is not None and (encoder is None or decoder is not None):
            raise CheckpointError("a head follows an encoder without a decoder")
        if encoder is None and decoder is None:
            raise CheckpointError(f"{self.kind} has neither an encoder nor a decoder")
        for name, stack in self.stacks.items():
            stack.check_role(name)
        if decoder is None or not decoder.cross_attention:
            return
        if encoder is None:
            raise CheckpointError("cross-attention needs an encoder")
        taken = getattr(decoder, "memory_width", decoder.width)
        if taken != encoder.width:
            raise CheckpointError(f"the decoder takes rows of width {taken}, the encoder gives {encoder.width}")

    @property
    def stacks(self) -> dict[str, StackSpec]:
        """The stacks by name, which is also the prefix of their tensors' names."""
        both = {"encoder": self.encoder, "decoder": self.decoder}
        return {name: stack for name, stack in both.items() if stack is not None}
