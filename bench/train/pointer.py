"""A pointer network (Vinyals 2015) that learns convex hulls."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from bench.train.fitting import fit
from bench.train.hulls import MOST, examples, hull

UNITS = 128
BATCH, STEPS, RATE = 32, 16000, 1.5e-3
PARTS = {
    "weight_ih_l0": "input.weight",
    "bias_ih_l0": "input.bias",
    "weight_hh_l0": "state.weight",
    "bias_hh_l0": "state.bias",
}
# PyTorch's names -> fastattn's.
NAMES = {
    f"{stack}.{theirs}": f"{stack}.layers.0.{ours}"
    for stack in ("encoder", "decoder")
    for theirs, ours in PARTS.items()
} | {
    name: f"decoder.attention.{name}"
    for name in ("query.weight", "query.bias", "key.weight", "key.bias", "score.weight")
}
KEY = "decoder.attention.key.weight"


class PointerNet(nn.Module):
    """Input row 0, zeros, means the end, and is the decoder's first input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.decoder = nn.LSTM(2, UNITS, batch_first=True), nn.LSTM(2, UNITS, batch_first=True)
        self.query, self.key = nn.Linear(UNITS, UNITS), nn.Linear(UNITS, UNITS)
        self.score = nn.Linear(UNITS, 1, bias=False)

    def forward(self, read_BS2: Tensor, lengths_B: Tensor, inputs_BT2: Tensor) -> Tensor:
        """The scores of all rows at each step (B, T, S): u = v . tanh(W1 e + W2 d), equation 3."""
        packed = pack_padded_sequence(read_BS2, lengths_B, batch_first=True, enforce_sorted=False)
        rows, state = self.encoder(packed)
        keys_BSH = self.key(pad_packed_sequence(rows, batch_first=True)[0])
        queries_BTH = self.query(self.decoder(inputs_BT2, state)[0])
        scores_BTS = self.score(torch.tanh(keys_BSH[:, None] + queries_BTH[:, :, None])).squeeze(3)
        there_BS = torch.arange(read_BS2.shape[1]) < lengths_B[:, None]
        return scores_BTS.masked_fill(~there_BS[:, None], -torch.inf)


def padded(points: list[np.ndarray]) -> tuple[Tensor, Tensor]:
    """The encoder's input (B, S, 2), and the number of rows of each example."""
    rows = [torch.from_numpy(np.concatenate([np.zeros((1, 2), np.float32), points_N2])) for points_N2 in points]
    return pad_sequence(rows, batch_first=True), torch.tensor([len(row) for row in rows])


def loss(model: PointerNet, points: list[np.ndarray]) -> Tensor:
    """The mean cross entropy of the hulls' corners and ends."""
    read_BS2, lengths_B = padded(points)
    targets = [torch.tensor([*(n + 1 for n in hull(points_N2)), 0]) for points_N2 in points]
    target_BT = pad_sequence(targets, batch_first=True, padding_value=-1)
    before_BT = torch.cat([torch.zeros(len(points), 1, dtype=torch.int64), target_BT[:, :-1].clamp(min=0)], 1)
    inputs_BT2 = read_BS2.gather(1, before_BT[:, :, None].expand(-1, -1, 2))
    learned = target_BT >= 0
    return nn.functional.cross_entropy(model(read_BS2, lengths_B, inputs_BT2)[learned], target_BT[learned])


def canonical(model: PointerNet) -> dict[str, Tensor]:
    """{fastattn's name: tensor}; its keys are computed from rows of the encoder's states and inputs."""
    tensors = {NAMES[name]: tensor.clone() for name, tensor in model.state_dict().items()}
    tensors[KEY] = torch.cat([tensors[KEY], torch.zeros(UNITS, 2)], 1)
    return tensors | {"decoder.projection.weight": torch.eye(MOST + 1)}


def restored(tensors: dict[str, Tensor]) -> PointerNet:
    model, named = PointerNet(), tensors | {KEY: tensors[KEY][:, :UNITS]}
    model.load_state_dict({theirs: named[ours] for theirs, ours in NAMES.items()})
    return model


@torch.inference_mode()
def point(model: PointerNet, points: list[np.ndarray], most: int) -> list[list[int]]:
    """Search greedily: the rows pointed at in at most ``most`` steps, up to the end."""
    read_BS2, lengths_B = padded(points)
    made_BT = torch.zeros(len(points), 1, dtype=torch.int64)
    for _ in range(most):
        inputs_BT2 = read_BS2.gather(1, made_BT[:, :, None].expand(-1, -1, 2))
        made_BT = torch.cat([made_BT, model(read_BS2, lengths_B, inputs_BT2)[:, -1:].argmax(2)], 1)
    rows = [[place - 1 for place in places] for places in made_BT[:, 1:].tolist()]
    return [row[: row.index(-1)] if -1 in row else row for row in rows]


def train(archive: Path, into: Path) -> None:
    """Write model.pt and the mapping that reads it; no data is read."""
    torch.manual_seed(13)
    model = PointerNet()
    fit(model, STEPS, RATE, lambda step: loss(model, examples(BATCH, step)))
    into.mkdir(parents=True, exist_ok=True)
    torch.save(canonical(model), into / "model.pt")
    (into / "fastattn.toml").write_text('like = "pointer"\n', encoding="utf-8", newline="\n")
