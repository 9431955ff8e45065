"""Rotary positions for texts longer than those of training, as plain data."""

from fastattn.errors import CheckpointError
from fastattn.spec.checks import check_known
from fastattn.system.records import dataclass

STRETCHES = ("yarn", "llama3", "longrope")


@dataclass(frozen=True)
class Stretch:
    """Scaled rotary positions, for texts longer than those of training: slow pairs of dimensions turn slower still."""

    kind: str  # from STRETCHES: YaRN (Peng 2023, section 3.2), Llama 3's form, LongRoPE (Ding 2024): a divisor a pair
    factor: float  # by which the slow pairs are slowed
    length: int  # of the longest texts of training
    slow: float  # turns within this length: pairs with fewer get the whole factor
    fast: float  # likewise: pairs with more get none of it, those between a part
    whole: bool = True  # yarn: whether the part begins and ends at a pair
    size: float = 1.0  # multiplies sines and cosines
    divisors: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_known("stretch of rotary positions", self.kind, STRETCHES)
        numbers = (self.factor, self.length, self.slow, self.fast, self.size, *self.divisors)
        if not (all(1e-30 < number < 1e30 for number in numbers) and self.slow < self.fast):
            raise CheckpointError(
                f"stretched rotary positions need numbers above zero and below 1e30, the slow turns fewer than the "
                f"fast, got factor {self.factor:g}, length {self.length:g}, turns {self.slow:g} and {self.fast:g}, "
                f"size {self.size:g}"
            )
