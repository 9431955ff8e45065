"""Chunks of prompts that run recorded: the bits and the cache of chunks that do not."""

import numpy as np
import pytest

from fastattn.decoding import prompts
from fastattn.decoding.prompts import own_slots
from fastattn.decoding.recorded_layers import RecordedLayers
from fastattn.layers.key_value_cache import KeyValueCache
from fastattn.models.kinds import build_model
from fastattn.ops import cpu
from fastattn.spec.architecture import Alibi, LocalSpec, PositionSpec, RecurrenceSpec
from tests.generation.language_models import checkpoint, make, with_stack

SINUSOID = PositionSpec("sinusoid")
STACKS = {
    "rotary": with_stack(),
    "windows": with_stack(local=LocalSpec((0,), before=3, after=0)),
    "alibi": with_stack(positions=PositionSpec("alibi", alibi=Alibi())),
    "average attention": with_stack(positions=SINUSOID, recurrence=RecurrenceSpec("average-attention")),
}
# Tokens of three prompts in each chunk: the third prompt begins behind others, and tables grow.
COUNTS = [(9, 4, 0), (9, 4, 0), (5, 5, 3), (12, 0, 1), (10, 2, 1), (60, 1, 2), (1, 1, 60), (7, 4, 2), (8, 3, 3)]


@pytest.mark.parametrize("stack", STACKS)
def test_recorded_chunks_are_those_of_prefill(stack):
    model = build_model(checkpoint(stack=STACKS[stack]), cpu, "int8")
    cache, other = (KeyValueCache(cpu, model.sizes, 20, 0) for _ in range(2))
    slots_B = np.concatenate([own_slots(cache, 1)[1] for _ in range(3)])
    np.testing.assert_array_equal(slots_B, np.concatenate([own_slots(other, 1)[1] for _ in range(3)]))
    layers, ends_B, made = RecordedLayers(model, cache, cpu.recorder()), np.zeros(3, np.int64), []
    for number, counts in enumerate(COUNTS):
        counts_B = np.array(counts)
        some_b = np.flatnonzero(counts_B)
        firsts_b, counts_b, slots_b = ends_B[some_b], counts_B[some_b], slots_B[some_b]
        starts_b1 = np.concatenate([[0], np.cumsum(counts_b)])
        tokens_N = (np.arange(counts_B.sum(), dtype=np.int32) * 7 + number) % 200 + 2
        positions_N = np.concatenate([np.arange(n, dtype=np.int32) + first for first, n in zip(firsts_b, counts_b)])
        chunk = {"slots_B": slots_b, "firsts_B": firsts_b}
        found_ND = layers.step(np.repeat(slots_b, counts_b), tokens_N, positions_N)
        made.append(found_ND is not None)
        if found_ND is None:
            found_ND, _ = model.prefill(tokens_N, starts_b1, cache=cache, **chunk)
        expected_ND, _ = model.prefill(tokens_N, starts_b1, cache=other, **chunk)
        np.testing.assert_array_equal(found_ND, expected_ND)
        for table, expected in zip(cache.written_tables, other.written_tables):
            np.testing.assert_array_equal(table, expected)
        assert cache.target.free_count == other.target.free_count
        ends_B += counts_B
    # 16 rows, the third time with a first token; 64 rows twice; 16 rows
    assert made == [False, True, False, True, True, False, True, False, True]


def test_the_number_of_threads_is_part_of_a_recording():
    model = build_model(checkpoint(), cpu)
    cache = KeyValueCache(cpu, model.sizes, 20, 0)
    layers, slots_R = RecordedLayers(model, cache, cpu.recorder()), own_slots(cache, 1)[1]
    for position, threads in enumerate((1, 1, 1, 2, 2, 1)):
        with cpu.use_threads(threads):
            layers.step(slots_R, np.full(1, 5, np.int32), np.full(1, position, np.int32))
    assert sorted(threads for _, threads in layers._recordings) == [1, 2]


@pytest.mark.parametrize("rows", [45, 79])
def test_chunks_have_few_lengths(rows, monkeypatch):
    read, real = [], prompts.read_chunk
    weights = build_model(checkpoint(), cpu).sizes.layer_weights
    monkeypatch.setattr(prompts, "GUESSED_SECONDS", prompts.CHUNK_SECONDS / (rows + 0.5) / weights)
    monkeypatch.setattr(prompts, "read_chunk", lambda *given: read.append(given[-1]) or real(*given))
    make(end_ids=()).generate([[2 + n % 250 for n in range(200)]], max_new_tokens=1)
    assert read[0] == rows // 16 * 16
