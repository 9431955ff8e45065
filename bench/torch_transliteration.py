"""e2k and thai2rom as PyTorch modules with a checkpoint's weights, eager or exported to ONNX Runtime; greedy search."""

import io
import warnings
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from bench.onnx_session import session
from fastattn.spec.checkpoint import Checkpoint

Arrays = Sequence[Any]  # NumPy's or PyTorch's
HEADS = 4  # of e2k


class Engine(NamedTuple):
    """The encoder and the step with which a batch of words is decoded.

    encode  (ids_BS, lengths_B), the longest first, to the arrays of a step
    step    (last_B, there_BS, *arrays) to logits_BV and new values of the first ``states`` arrays
    """

    encode: Callable[..., Arrays]
    step: Callable[..., Arrays]
    states: int


def _linear(tensors: Any, name: str) -> nn.Linear:
    weight, bias = (torch.tensor(np.asarray(tensors[f"{name}.{part}"])) for part in ("weight", "bias"))
    layer = nn.Linear(weight.shape[1], weight.shape[0])
    layer.load_state_dict({"weight": weight, "bias": bias})
    return layer


def _embedding(tensors: Any, name: str) -> nn.Embedding:
    return nn.Embedding.from_pretrained(torch.tensor(np.asarray(tensors[f"{name}.embedding.weight"])))


def _recurrent(tensors: Any, layer: str, cell: type[nn.GRU] | type[nn.LSTM]) -> nn.GRU | nn.LSTM:
    rows, units = tensors[f"{layer}.state.weight"].shape
    inputs, both = tensors[f"{layer}.input.weight"].shape[1], f"{layer}.backward.weight" in tensors
    state = {}
    for direction, (name, end) in enumerate((("state", ""), ("backward", "_reverse"))[: 1 + both]):
        span = slice(direction * rows, (direction + 1) * rows)
        for part in ("weight", "bias"):
            state[f"{part}_ih_l0{end}"] = torch.tensor(np.asarray(tensors[f"{layer}.input.{part}"])[span])
            state[f"{part}_hh_l0{end}"] = torch.tensor(np.asarray(tensors[f"{layer}.{name}.{part}"]))
    module = cell(inputs, units, batch_first=True, bidirectional=both)
    module.load_state_dict(state)
    return module


def _attended(query_BHK: Tensor, keys_BHSK: Tensor, values_BHSV: Tensor, there_BS: Tensor, scale: float) -> Tensor:
    scores_BHS = (query_BHK[:, :, None] @ keys_BHSK.transpose(2, 3))[:, :, 0] * scale
    weights_BHS = scores_BHS.masked_fill(~there_BS[:, None], -torch.inf).softmax(-1)
    return (weights_BHS[:, :, None] @ values_BHSV).flatten(1)


class _Encoder(nn.Module):
    def __init__(self, tensors: Any, cell: type[nn.GRU] | type[nn.LSTM]):
        super().__init__()
        self.embedding = _embedding(tensors, "encoder")
        self.layer = _recurrent(tensors, "encoder.layers.0", cell)

    def rows(self, ids_BS: Tensor, lengths_B: Tensor) -> tuple[Tensor, Any]:
        rows, last = self.layer(pack_padded_sequence(self.embedding(ids_BS), lengths_B, batch_first=True))
        return pad_packed_sequence(rows, batch_first=True)[0], last


class _E2kEncoder(_Encoder):
    def __init__(self, tensors: Any):
        super().__init__(tensors, nn.GRU)
        self.readout = _linear(tensors, "encoder.readout")
        self.key, self.value = (_linear(tensors, f"decoder.attention.{name}") for name in ("key", "value"))

    def forward(self, ids_BS: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """Two states of zeros; keys and values of the heads."""
        rows_BSH = torch.tanh(self.readout(self.rows(ids_BS, lengths_B)[0]))
        heads = (x(rows_BSH).unflatten(2, (HEADS, -1)).transpose(1, 2) for x in (self.key, self.value))
        zeros_1BH = torch.zeros_like(rows_BSH[:, :1]).transpose(0, 1)
        return zeros_1BH, zeros_1BH.clone(), *heads


class _E2kStep(nn.Module):
    def __init__(self, tensors: Any):
        super().__init__()
        self.embedding = _embedding(tensors, "decoder")
        self.layers = nn.ModuleList(_recurrent(tensors, f"decoder.layers.{i}", nn.GRU) for i in range(2))
        self.query, self.output = (_linear(tensors, f"decoder.attention.{name}") for name in ("query", "output"))
        self.projection = _linear(tensors, "decoder.projection")

    def forward(
        self, last_B: Tensor, there_BS: Tensor, h_1BH: Tensor, g_1BH: Tensor, keys_BHSK: Tensor, values_BHSV: Tensor
    ) -> tuple[Tensor, ...]:
        x_B1H, h_1BH = self.layers[0](self.embedding(last_B)[:, None], h_1BH)
        query_BHK = self.query(x_B1H[:, 0]).unflatten(1, (HEADS, -1))
        context_BH = _attended(query_BHK, keys_BHSK, values_BHSV, there_BS, query_BHK.shape[2] ** -0.5)
        x_B1H, g_1BH = self.layers[1](torch.cat([x_B1H, self.output(context_BH)[:, None]], 2), g_1BH)
        return self.projection(x_B1H[:, 0]), h_1BH, g_1BH


class _ThaiEncoder(_Encoder):
    def __init__(self, tensors: Any):
        super().__init__(tensors, nn.LSTM)
        self.key = _linear(tensors, "decoder.attention.key")

    def forward(self, ids_BS: Tensor, lengths_B: Tensor) -> tuple[Tensor, ...]:
        """The last states of both directions; keys and values."""
        rows_BSH, (last_2BU, _) = self.rows(ids_BS, lengths_B)
        return torch.cat([last_2BU[0], last_2BU[1]], 1), self.key(rows_BSH)[:, None], rows_BSH[:, None]


class _ThaiStep(nn.Module):
    """The layer begins each step with zeros; the state of the step before is only the query."""

    def __init__(self, tensors: Any):
        super().__init__()
        self.embedding = _embedding(tensors, "decoder")
        self.layer = _recurrent(tensors, "decoder.layers.0", nn.LSTM)
        self.projection = _linear(tensors, "decoder.projection")

    def forward(
        self, last_B: Tensor, there_BS: Tensor, h_BH: Tensor, keys_B1SK: Tensor, values_B1SV: Tensor
    ) -> tuple[Tensor, ...]:
        context_BH = _attended(h_BH[:, None], keys_B1SK, values_B1SV, there_BS, 1.0)
        rows_B1H, _ = self.layer(torch.cat([self.embedding(last_B), context_BH], 1)[:, None])
        return self.projection(rows_B1H[:, 0]), rows_B1H[:, 0]


MODULES: dict[str, tuple[Any, Any, int]] = {"e2k": (_E2kEncoder, _E2kStep, 2), "thai2rom": (_ThaiEncoder, _ThaiStep, 1)}


def torch_engine(name: str, checkpoint: Checkpoint) -> Engine:
    *modules, states = MODULES[name]

    def eager(module: nn.Module) -> Callable[..., Arrays]:
        def call(*arrays: Any) -> Arrays:
            with torch.inference_mode():
                return module(*map(torch.as_tensor, arrays))

        return call

    encode, step = (eager(module(checkpoint.tensors).eval()) for module in modules)
    return Engine(encode, step, states)


def onnx_engine(name: str, checkpoint: Checkpoint, threads: int) -> Engine:
    encoder, step, states = MODULES[name]
    ids_BS, lengths_B = torch.ones(2, 3, dtype=torch.int64), torch.tensor([3, 2])
    encoder, step = encoder(checkpoint.tensors).eval(), step(checkpoint.tensors).eval()
    inputs = torch.ones(2, dtype=torch.int64), torch.ones(2, 3, dtype=torch.bool), *encoder(ids_BS, lengths_B)
    return Engine(_exported(encoder, (ids_BS, lengths_B), threads), _exported(step, inputs, threads), states)


def _exported(module: nn.Module, inputs: tuple[Tensor, ...], threads: int) -> Callable[..., Arrays]:
    """Dimensions of sizes 2 and 3 are variable: sentences and positions."""
    names = [f"input{i}" for i in range(len(inputs))]
    axes = {
        name: {at: f"size{size}" for at, size in enumerate(array.shape) if size in (2, 3)}
        for name, array in zip(names, inputs, strict=True)
    }
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, inputs, file, input_names=names, dynamic_axes=axes, dynamo=False)
    runner = session(file.getvalue(), threads)
    return lambda *arrays: runner.run(None, dict(zip(names, map(np.asarray, arrays), strict=True)))


def transliterate(engine: Engine, checkpoint: Checkpoint, most: int, words: list[str]) -> list[str]:
    """Transliterate a batch of words; characters outside the vocabulary become its unknown token, or are dropped."""
    text = checkpoint.text
    numbers = {character: i for i, character in enumerate(text.source_vocabulary)}
    unknown = text.source_vocabulary.index(text.unk_token) if text.unk_token in numbers else None
    first, last = (text.bos_token,) * text.add_source_bos, (text.eos_token,) * text.add_source_eos
    sources = []
    for word in words:
        characters = word.lower() if text.lowercase else word
        ids = (numbers.get(character, unknown) for character in (*first, *characters, *last))
        sources.append(np.array([i for i in ids if i is not None]))
    start, end = map(text.target_vocabulary.index, (text.decoder_start_token, text.eos_token))
    results = greedy(engine, sources, start, end, most)
    return ["".join(text.target_vocabulary[i] for i in ids) for ids in results]


def greedy(engine: Engine, sources: list[np.ndarray], start: int, end: int, most: int) -> list[list[int]]:
    """Ids of a batch, before each one's end."""
    order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
    lengths_B = np.array([len(sources[i]) for i in order])
    ids_BS = np.zeros((len(order), lengths_B[0]), np.int64)
    for b, i in enumerate(order):
        ids_BS[b, : lengths_B[b]] = sources[i]
    there_BS = np.arange(lengths_B[0]) < lengths_B[:, None]
    carried = list(engine.encode(ids_BS, lengths_B))
    last_B, ended_B, steps = np.full(len(order), start), np.zeros(len(order), bool), []
    while len(steps) < most and not ended_B.all():
        logits_BV, *carried[: engine.states] = engine.step(last_B, there_BS, *carried)
        last_B = np.asarray(logits_BV).argmax(1)
        ended_B |= last_B == end
        steps.append(last_B)
    results = dict(zip(order, np.stack(steps, 1).tolist(), strict=True))
    return [ids[: ids.index(end)] if end in ids else ids for _, ids in sorted(results.items())]
