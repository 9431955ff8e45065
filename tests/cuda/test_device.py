"""Device "cuda" where something is missing or fails: one line, and the process goes on."""

import multiprocessing
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numba.cuda.cudadrv.driver import CudaAPIError
from numba.cuda.cudadrv.error import CudaSupportError

import fastattn
from fastattn.errors import FastattnError, InputError, OutOfMemoryError
from fastattn.ops import backend, cuda
from fastattn.ops.cuda import card

X_ND, WEIGHT_D = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones(4, np.float32)


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """No device was used yet."""
    monkeypatch.setattr("fastattn.ops._backends", {})


def failing(error: Exception) -> Any:
    def fail(*arguments: Any, **options: Any) -> Any:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (CudaSupportError("Error at driver init: \n\nCUDA driver library cannot be found."), "library cannot be found"),
        (CudaAPIError("[CUDA_ERROR_SYSTEM_DRIVER_MISMATCH] driver too old"), "driver too old"),
        (CudaAPIError("[CUDA_ERROR_NO_DEVICE] no CUDA-capable device is detected"), "no CUDA-capable device"),
    ],
)
def test_no_card(error: Exception, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(card.cuda, "current_context", failing(error))
    with pytest.raises(InputError, match=f"^device 'cuda' cannot be used: .*{said}[^\n]*$"):
        backend("cuda")
    assert backend("auto") is backend("cpu")
    with pytest.raises(InputError):
        fastattn.attention(*(X_ND[None, :, None],) * 3, device="cuda")


def test_auto_is_the_card() -> None:
    assert backend("auto") is backend("cuda") is cuda


def test_memory_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    error = CudaAPIError("[CUDA_ERROR_OUT_OF_MEMORY] Call to cuMemAlloc results in CUDA_ERROR_OUT_OF_MEMORY")
    with monkeypatch.context() as patch:
        patch.setattr(card.cuda, "device_array", failing(error))
        with pytest.raises(OutOfMemoryError, match="^the card has not enough memory left: smaller batches need less$"):
            cuda.layer_norm(X_ND, WEIGHT_D, None, 1e-5)
    assert np.isfinite(np.asarray(cuda.layer_norm(X_ND, WEIGHT_D, None, 1e-5))).all()


def test_rows_that_go_together_take_half_of_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (cuda.free_memory(), cuda.current_threads()) == (1 << 40, card.MAX_THREADS)
    for shares, expected in ((0, 1), (2.5, 2), (card.MAX_THREADS, card.MAX_THREADS), (1000, card.MAX_THREADS)):
        memory = SimpleNamespace(free=int(2 * shares * card.THREAD_BYTES), total=1 << 40)
        context = SimpleNamespace(get_memory_info=lambda memory=memory: memory)
        monkeypatch.setattr(card.cuda, "current_context", lambda context=context: context)
        assert (cuda.free_memory(), cuda.current_threads()) == (memory.free, expected)


def test_a_launch_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(card.cuda, "to_device", failing(CudaAPIError("[CUDA_ERROR_LAUNCH_FAILED] launch failed")))
        with pytest.raises(FastattnError, match=r"^the card failed: \[CUDA_ERROR_LAUNCH_FAILED\] launch failed$"):
            cuda.layer_norm(X_ND, WEIGHT_D, None, 1e-5)
    cuda.layer_norm(X_ND, WEIGHT_D, None, 1e-5)


def _child(sender: Any, call: Any) -> None:
    try:
        call()
    except FastattnError as error:
        sender.send(str(error))


@pytest.mark.parametrize("name", ["layer_norm", "free_memory"])
def test_a_process_forked_after_cuda_began(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which does not so much as ask for the context."""

    def call() -> Any:
        return cuda.free_memory() if name == "free_memory" else cuda.layer_norm(X_ND, WEIGHT_D, None, 1e-5)

    call()
    monkeypatch.setattr(card.cuda, "current_context", failing(CudaAPIError("[3] not initialized")))
    receiver, sender = multiprocessing.Pipe(duplex=False)
    child = multiprocessing.get_context("fork").Process(target=_child, args=(sender, call))
    child.start()
    assert receiver.poll(60)
    assert receiver.recv() == "this process was forked after device 'cuda' began: start it by 'spawn' instead"
    child.join()


def test_a_parameter_is_sent_once_and_goes_with_its_array(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[int] = []
    to_device = card.cuda.to_device
    monkeypatch.setattr(card.cuda, "to_device", lambda array: (sent.append(id(array)), to_device(array))[1])
    weight_D = np.ones(4, np.float32)
    for _ in range(3):
        cuda.rms_norm(X_ND, weight_D, 1e-5)
    assert sent.count(id(weight_D)) == 1
    key = id(weight_D)
    del weight_D
    assert key not in card._uploaded
