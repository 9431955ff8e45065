"""Every variety of the tiny models on device "cuda": the CPU's tokens and vectors. Slow on the simulator."""

import numpy as np
import pytest

from fastattn import Translator
from fastattn.models.kinds import build_model
from fastattn.ops import cpu, cuda
from fastattn.spec.architecture import ModelSpec, StackSpec
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import EncoderText
from tests.models.encoder_cases import make_tensors
from tests.models.test_models_encoder import VARIETIES as ENCODERS
from tests.models.tiny_models import VARIETIES, random_checkpoint
from tests.ops.computed import agree

pytestmark = pytest.mark.slow
LINES = ["▁w1 ▁w2 ▁w9 ▁w4", "▁w7"]


@pytest.mark.parametrize("variety", VARIETIES)
def test_translations(variety: str) -> None:
    checkpoint = random_checkpoint(**VARIETIES[variety])
    got, expected = (Translator.from_checkpoint(checkpoint, ops=ops) for ops in (cuda, cpu))
    attended = {"return_attention": expected._service.model.sizes.aligns}
    for searched in ({"beam_size": 1}, {"beam_size": 2, "return_scores": True} | attended):
        options = searched | {"max_decoding_length": 5, "details": True}
        agree(*(translator.translate(LINES, **options) for translator in (got, expected)))
    agree(*(translator.score(LINES, LINES[::-1]) for translator in (got, expected)))


@pytest.mark.parametrize("spec", ENCODERS.values(), ids=ENCODERS)
def test_vectors(spec: StackSpec) -> None:
    whole = ModelSpec("encoder", spec)
    checkpoint = Checkpoint(whole, make_tensors(whole, 0), EncoderText(b"", max_length=512))
    ids_B = [np.random.default_rng(n).integers(0, spec.vocabulary, n).astype(np.int32) for n in (5, 0, 11, 1)]
    rows_ND, expected_ND = (np.asarray(build_model(checkpoint, ops).encode(ids_B)[0]) for ops in (cuda, cpu))
    np.testing.assert_allclose(rows_ND, expected_ND, rtol=1e-5, atol=1e-4)
