"""Attention of arrays that lie on the card already: as of the same arrays of the host, and no number is copied.

On the simulator a card's memory is the host's. Here its addresses are changed, so that who reads one on the host ends
the process; streams, and whether PyTorch and CuPy tell what numba-cuda expects, only a card can show.
"""

from functools import partial
from typing import Any

import numpy as np
import pytest

import fastattn
from fastattn.array_attention.attention import additive_attention
from fastattn.errors import InputError
from fastattn.ops import cuda
from fastattn.ops.cuda import card
from fastattn.spec.rounding import bfloat16_bits
from tests.cuda.elsewhere import Exported, FakeCUDAArray, Lent
from tests.ops.computed import normal

B, T, S, H, G, K, V = 2, 9, 13, 4, 2, 5, 17
ARRAYS = normal(1, B, T, H, K), normal(2, B, S, G, K), normal(3, B, S, G, V)
BIAS, EVERYTHING = normal(4, B, H, T, S), {"return_weights": True, "return_logsumexp": True}


def host(found: Any) -> np.ndarray:
    """The numbers of a result on the card."""
    assert type(found) is FakeCUDAArray
    return found.copy_to_host()


def agree(call: Any, arrays: Any, **options: Any) -> None:
    """Each result is on the card, and has the bits of the same call of arrays of the host."""
    expected = call(*arrays, device="cuda", **options)
    found = call(*map(Lent, arrays), device="cuda", **options)
    for one, other in zip(*(x if isinstance(x, tuple) else (x,) for x in (found, expected)), strict=True):
        assert host(one).dtype == other.dtype
        np.testing.assert_array_equal(host(one), other)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": EVERYTHING,
    "lengths": {"lengths": [13, 0], "causal": True, "offset": "end"} | EVERYTHING,
    "bias": {"bias": BIAS, "softcap": 2.0, "mask": BIAS > -1},
    "extreme": {"scale": 1e32} | EVERYTHING,
    "overflow": {"bias": 3e38 * np.sign(BIAS)} | EVERYTHING,
    "nothing": {"lengths": 0} | EVERYTHING,
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options(name: str) -> None:
    agree(fastattn.attention, ARRAYS, **OPTIONS[name])


@pytest.mark.parametrize("cut", [slice(0, 1), slice(1, 3)], ids=["queries", "keys"])
def test_none_of_the(cut: slice) -> None:
    arrays = list(ARRAYS)
    arrays[cut] = (x[:, :0] for x in arrays[cut])
    agree(fastattn.attention, arrays, sinks=normal(5, H), **EVERYTHING)


STRIDES = {
    "heads first": (lambda x: np.ascontiguousarray(x.swapaxes(1, 2)), {"layout": "BHTK"}),
    "parts": (lambda x: np.repeat(x, 3, axis=3)[::-1, 1::2, :, 1 : 1 + x.shape[3]], {}),
    "backwards": (lambda x: x[:, ::-1], {}),
    "broadcast": (lambda x: np.broadcast_to(x[:1], x.shape), {}),
}


@pytest.mark.parametrize("name", STRIDES)
def test_strides(name: str) -> None:
    change, options = STRIDES[name]
    agree(fastattn.attention, [change(x) for x in ARRAYS], **options)


@pytest.mark.parametrize("change", [partial(np.asarray, dtype=np.float16), bfloat16_bits], ids=["float16", "bfloat16"])
def test_types(change: Any) -> None:
    arrays = [change(x) for x in ARRAYS]
    expected = fastattn.attention(*arrays, device="cuda", return_logsumexp=True)
    found = fastattn.attention(*map(Lent, arrays), device="cuda", return_logsumexp=True)
    for one, other in zip(found, expected):
        np.testing.assert_array_equal(host(one), other)
        assert host(one).dtype == other.dtype


@pytest.mark.parametrize("name", sorted(STRIDES.keys() - {"broadcast"}))  # of which NumPy makes nothing for DLPack
def test_dlpack(name: str) -> None:
    """Complete for the default stream, which is DLPack's 1."""
    change, options = STRIDES[name]
    arrays = [Exported(change(x)) for x in ARRAYS]
    found = fastattn.attention(*arrays, device="cuda", **options)
    np.testing.assert_array_equal(host(found), fastattn.attention(*map(change, ARRAYS), device="cuda", **options))
    assert [one.asked for one in arrays] == [{"stream": 1}] * 3


def test_dlpack_of_other_types_and_devices() -> None:
    bits = [bfloat16_bits(x) for x in ARRAYS]
    found = host(fastattn.attention(*(Exported(x, code=4) for x in bits), device="cuda"))
    np.testing.assert_array_equal(found, fastattn.attention(*bits, device="cuda"))
    out = Exported(np.empty((B, T, H, V), np.float32))
    assert fastattn.attention(*map(Exported, ARRAYS), device="cuda", out=out) is out
    np.testing.assert_array_equal(out.array, fastattn.attention(*ARRAYS, device="cuda"))
    with pytest.raises(InputError, match="^query: expected a NumPy array of float32.* got Exported; write "):
        fastattn.attention(Exported(ARRAYS[0], device=(1, 0)), *ARRAYS[1:], device="cuda")
    with pytest.raises(InputError, match="^an array lies on card 1, device 'cuda' is card 0$"):
        fastattn.attention(Exported(ARRAYS[0], device=(2, 1)), *ARRAYS[1:], device="cuda")


def test_ragged_and_additive() -> None:
    rows = [x.reshape(-1, *x.shape[2:]) for x in ARRAYS]
    ragged = partial(fastattn.attention_ragged, query_starts=[0, 5, 5, 18], key_starts=[0, 11, 12, 26])
    agree(ragged, rows, causal=True, **EVERYTHING)
    agree(partial(additive_attention, vector=normal(6, H, K)), ARRAYS, **EVERYTHING)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_results_where_the_caller_wants_them(dtype: Any) -> None:
    arrays = ARRAYS if dtype == np.float32 else [bfloat16_bits(x) for x in ARRAYS]
    wide = np.full((B, H, T, 2 * V), 7, dtype)
    out = Lent(wide.swapaxes(1, 2)[..., 3 : 3 + V])
    assert fastattn.attention(*map(Lent, arrays), device="cuda", out=out) is out
    np.testing.assert_array_equal(out.array, fastattn.attention(*arrays, device="cuda"))
    assert (wide[..., :3] == 7).all() and (wide[..., 3 + V :] == 7).all()
    bias = 3e38 * np.sign(BIAS)  # the host computes some rows
    fastattn.attention(*map(Lent, arrays), device="cuda", out=out, bias=bias)
    np.testing.assert_array_equal(out.array, fastattn.attention(*arrays, device="cuda", bias=bias))
    assert (wide[..., :3] == 7).all() and (wide[..., 3 + V :] == 7).all()


def test_no_number_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    send, fetch = card.cuda.to_device, FakeCUDAArray.copy_to_host
    monkeypatch.setattr(card.cuda, "to_device", lambda array: (sizes.append(array.size), send(array))[1])
    monkeypatch.setattr(FakeCUDAArray, "copy_to_host", lambda array: (sizes.append(array.size), fetch(array))[1])
    fastattn.attention(*map(Lent, ARRAYS), device="cuda", **EVERYTHING)
    assert 0 < max(sizes) <= 6 * B * T  # places of tiles, and how many rows overflowed
    fastattn.attention(*ARRAYS, device="cuda", **EVERYTHING)
    assert max(sizes) == B * T * max(H * V, H * S)


class Tracked:
    """A tensor that requires a gradient."""

    @property
    def __cuda_array_interface__(self) -> Any:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable\nthat requires grad.")


def test_a_traceback_reads_no_number() -> None:
    assert repr(cuda.as_array(Lent(ARRAYS[0]))) == f"<float32 {ARRAYS[0].shape} on a card>"


def test_what_cannot_be_read() -> None:
    query, key, value = map(Lent, ARRAYS)
    attend = partial(fastattn.attention, device="cuda")

    def says(text: str, call: Any, *arguments: Any, **options: Any) -> None:
        with pytest.raises(InputError) as raised:
            call(*arguments, **options)
        assert str(raised.value) == text

    cannot = "an array on the card cannot be read: "
    says(f"{cannot}Can't get __cuda_array_interface__ on Variable that requires grad.", attend, Tracked(), key, value)
    says(f"{cannot}Masked arrays are not supported", attend, Lent(ARRAYS[0], mask=query), key, value)
    host_key = "key: expected an array on the card, as the query is, got a NumPy array"
    says(host_key, attend, query, ARRAYS[1], value)
    says("value: expected a NumPy array, as the query is, got an array on the card", attend, *ARRAYS[:2], value)
    out = np.empty((B, T, H, V), np.float32)
    says(host_key.replace("key", "out"), attend, query, key, value, out=out)
    says(
        "out: expected memory of its own, got some of query's", attend, query, key, Lent(ARRAYS[2][..., :K]), out=query
    )
    way = "query: expected numbers on the card, aligned and adjacent along the last axis, got strides"
    apart = np.repeat(ARRAYS[0], 2, axis=3)[..., ::2]
    says(f"{way} {apart.strides} of float32", attend, Lent(apart), key, value)
    wide = ARRAYS[0].astype(np.float64)
    with pytest.raises(InputError, match=r"^query: expected .* float32, float16 or bfloat16 .*, got float64; write"):
        attend(Lent(wide), key, value)
    bias = card.empty((B, H, T, S), np.float32)
    types = "bias: expected a NumPy array of float32, got FakeCUDAArray; write bias.copy_to_host()"
    says(types, attend, query, key, value, bias=bias)


def test_device_cpu() -> None:
    for call in (fastattn.attention, partial(fastattn.attention_ragged, query_starts=[0, 9], key_starts=[0, 13])):
        with pytest.raises(InputError, match="^query: expected a NumPy array of float32.* got Lent; write [^\n]*$"):
            call(*map(Lent, ARRAYS))
