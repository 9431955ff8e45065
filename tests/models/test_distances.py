"""Disentangled attention: buckets of distances, and rows of distances that are packed as sequences need them."""

import numpy as np
import pytest

from fastattn.layers.attention import LEAST, distance_numbers, log_buckets
from fastattn.models.kinds import build_model
from fastattn.ops import cpu as operations
from fastattn.spec.architecture import PositionSpec
from tests.models.encoder_cases import EncoderCase, make_checkpoint
from tests.models.specs import stack_spec

# distance -> bucket as transformers' make_log_bucket_position gives it for 256 buckets and 512 positions
PUBLISHED = {1: 1, 127: 127, 128: 128, 129: 129, 130: 130, 200: 169, 300: 207, 400: 233, 510: 255, 511: 255, 512: 256}


def _numbers(distance: list[int], **fields: int) -> list[int]:
    return distance_numbers(np.array(distance), PositionSpec("disentangled", **fields)).tolist()


def test_buckets_are_the_published_ones() -> None:
    distance, bucket = (np.array(numbers) for numbers in zip(*PUBLISHED.items()))
    np.testing.assert_array_equal(log_buckets(distance, 256, 512), bucket)
    np.testing.assert_array_equal(log_buckets(-distance, 256, 512), -bucket)
    assert log_buckets(np.zeros(1, np.int64), 256, 512) == 0


def test_distances_beyond_the_table_share_its_first_row_and_its_last() -> None:
    assert _numbers([-512, -511, 0, 511, 512, 9999], buckets=256, max_distance=512) == [0, 1, 256, 511, 511, 511]
    assert _numbers([-9, -4, -3, 0, 2, 3, 4, 9], max_distance=4) == [0, 0, 1, 4, 6, 7, 7, 7]
    assert _numbers([-9, -2, -1, 0, 1, 2, 9], buckets=2, max_distance=4) == [1, 1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize("buckets", [0, 32])
def test_more_packed_distances_change_no_bit(buckets: int) -> None:
    """A short sentence before and after longer ones, which need more distances and then reach the last of them."""
    keywords = {"layers": 1, "width": 12, "heads": 2, "key_heads": 2, "head_width": 6, "inner_width": 8}
    spec = stack_spec(
        **keywords, vocabulary=50, positions="disentangled", relative_buckets=buckets, relative_max_distance=300
    )
    model = build_model(make_checkpoint(EncoderCase("", "", spec)), operations)
    ids_B = [np.arange(n, dtype=np.int32) % 50 for n in (9, LEAST + 1, 2 * LEAST + 40, 700)]
    alone = [model.encode([ids])[0] for ids in ids_B]
    assert all(len(rows_TD) == len(ids) for rows_TD, ids in zip(alone, ids_B))
    together_ND, _ = model.encode(ids_B)
    np.testing.assert_array_equal(np.concatenate(alone), together_ND)
    fresh_ND, _ = build_model(make_checkpoint(EncoderCase("", "", spec)), operations).encode(ids_B[::-1])
    np.testing.assert_array_equal(np.concatenate(alone[::-1]), fresh_ND)
