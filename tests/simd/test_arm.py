"""What LLVM's names of Arm CPUs imply."""

import llvmlite.binding as llvm
import pytest

from fastattn.simd.target import implied_features

TRIPLE = "aarch64-unknown-linux-gnu"
ALL = {"dotprod", "i8mm", "bf16"}


@pytest.fixture(scope="module", autouse=True)
def _every_backend():
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@pytest.mark.parametrize(
    ("cpu", "features", "expected"),
    [
        ("cortex-a57", "+neon", set()),
        ("neoverse-n1", "+neon", {"dotprod"}),
        ("apple-m1", "", {"dotprod"}),
        ("neoverse-v1", "+neon", ALL),
        ("neoverse-v1", "+neon,-i8mm,-bf16", {"dotprod"}),
        ("generic", "", set()),
        ("generic", "+dotprod,+i8mm,+bf16", ALL),
    ],
)
def test_features_that_a_name_implies(cpu, features, expected):
    assert implied_features(TRIPLE, cpu, features) == expected
