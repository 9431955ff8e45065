"""A captioner of drawn shapes (Xu 2015): a residual network, an LSTM with soft or hard attention to its grid."""

from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from bench.torch_residual import ResidualNetwork
from bench.train.fitting import fit

SIDE, BATCH, STEPS, RATE = 64, 32, 2000, 2e-3
EMBEDDED, UNITS, WIDTH, READ = 24, 64, 48, 48
BLOCKS, WIDTHS, STEM = (1, 1), (24, 48), 16
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220), "yellow": (230, 200, 40)}
SHAPES = ("circle", "square", "triangle")
RELATIONS = {"above": (0, -1), "left of": (-1, 0)}
WORDS = ["</s>", "<s>", "a", *COLOURS, *SHAPES, "above", "left", "of"]
MOST = 12  # tokens of a caption, its end among them
MEAN, DEVIATION = 0.5, 0.25
MAPPING = f"""like = "captioner"
[pictures]
side = {SIDE}
mean = {MEAN}
std = {DEVIATION}
"""
HARD = '[decoder]\nattention = {score = "additive", after = 0, hard = true}\n'


def paint(image_YXC: np.ndarray, shape: str, colour: str, x: float, y: float, size: float) -> None:
    rows, columns = np.mgrid[: len(image_YXC), : image_YXC.shape[1]]
    right, down = columns - x, rows - y
    inside = {
        "circle": right**2 + down**2 <= size**2,
        "square": np.maximum(abs(right), abs(down)) <= 0.85 * size,
        "triangle": (abs(right) <= (down + size) / 2) & (down <= size),
    }[shape]
    image_YXC[inside] = COLOURS[colour]


def example(rng: np.random.Generator) -> tuple[np.ndarray, str]:
    """(a picture uint8 [SIDE, SIDE, 3], its caption), which gives the first shape's place relative to the second's."""
    image = np.full((SIDE, SIDE, 3), rng.integers(200, 256), np.uint8)
    kinds = [(str(rng.choice(SHAPES)), str(rng.choice([*COLOURS]))) for _ in range(2)]
    if rng.random() < 0.25:
        paint(image, *kinds[0], *rng.uniform(18, SIDE - 18, 2), rng.uniform(8, 14))
        words = f"a {kinds[0][1]} {kinds[0][0]}"
    else:
        relation = str(rng.choice([*RELATIONS]))
        middle, along = rng.uniform(26, SIDE - 26, 2), np.array(RELATIONS[relation]) * rng.uniform(14, 17)
        for (shape, colour), place in zip(kinds, (middle + along, middle - along)):
            paint(image, shape, colour, *place, rng.uniform(7, 11))
        words = f"a {kinds[0][1]} {kinds[0][0]} {relation} a {kinds[1][1]} {kinds[1][0]}"
    noise = rng.normal(0, 6, image.shape)
    return np.clip(image + noise, 0, 255).astype(np.uint8), words


def examples(count: int, seed: int) -> tuple[list[np.ndarray], list[str]]:
    rng = np.random.default_rng([13, seed])
    pairs = [example(rng) for _ in range(count)]
    return [image for image, _ in pairs], [words for _, words in pairs]


def as_tensor(images: list[np.ndarray]) -> Tensor:
    """The images, normalized, as (B, 3, SIDE, SIDE)."""
    return torch.from_numpy((np.stack(images).transpose(0, 3, 1, 2) / np.float32(255) - MEAN) / DEVIATION).float()


class CaptionNet(nn.Module):
    """The decoder's first state comes from the grid's mean; the context joins the cell's input and the readout.

    hard  the context is the row of the most probable place; in training, of a drawn place, with the softmax's gradient
          (Jang 2017, straight-through)
    """

    def __init__(self, hard: bool = False) -> None:
        super().__init__()
        self.hard = hard
        self.encoder = ResidualNetwork(BLOCKS, WIDTHS, stem=STEM)
        memory = WIDTHS[-1]
        self.embedding, self.bridge = nn.Embedding(len(WORDS), EMBEDDED), nn.Linear(memory, 2 * UNITS)
        self.query, self.key = nn.Linear(UNITS, WIDTH), nn.Linear(memory, WIDTH)
        self.score, self.cell = nn.Linear(WIDTH, 1, bias=False), nn.LSTMCell(EMBEDDED + memory, UNITS)
        self.readout = nn.Linear(EMBEDDED + UNITS + memory, READ)
        self.projection = nn.Linear(READ, len(WORDS))

    def begin(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """(the grid's rows (B, S, D), the first state)."""
        rows_BSD = self.encoder(images).flatten(2).transpose(1, 2)
        hidden, cell = torch.tanh(self.bridge(rows_BSD.mean(1))).chunk(2, 1)
        return rows_BSD, (hidden, cell)

    def step(
        self, words_B: Tensor, rows_BSD: Tensor, state: tuple[Tensor, Tensor]
    ) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor]]:
        """(logits_BV, weights_BS, the next state)."""
        scores_BS = self.score(torch.tanh(self.query(state[0])[:, None] + self.key(rows_BSD))).squeeze(2)
        weights_BS = scores_BS.softmax(1)
        if self.hard and self.training:
            weights_BS = nn.functional.gumbel_softmax(scores_BS, hard=True)
        elif self.hard:
            weights_BS = nn.functional.one_hot(weights_BS.argmax(1), weights_BS.shape[1]).float()
        context_BD = (weights_BS[:, :, None] * rows_BSD).sum(1)
        embedded_BE = self.embedding(words_B)
        state = self.cell(torch.cat([embedded_BE, context_BD], 1), state)
        read = torch.tanh(self.readout(torch.cat([embedded_BE, state[0], context_BD], 1)))
        return self.projection(read), weights_BS, state

    @torch.inference_mode()
    def caption(self, images: Tensor) -> tuple[list[str], list[np.ndarray]]:
        """Search greedily: sentences, and for each the weights of its words [words, S]."""
        rows_BSD, state = self.begin(images)
        words_B, tokens, focus = torch.full((len(images),), WORDS.index("<s>")), [], []
        for _ in range(MOST):
            logits_BV, weights_BS, state = self.step(words_B, rows_BSD, state)
            words_B = logits_BV.argmax(1)
            tokens.append(words_B)
            focus.append(weights_BS)
        sentences, weights = [], []
        for ids, weights_TS in zip(torch.stack(tokens, 1).tolist(), torch.stack(focus, 1).numpy(), strict=True):
            length = ids.index(0) if 0 in ids else MOST
            sentences.append(" ".join(WORDS[i] for i in ids[:length]))
            weights.append(weights_TS[:length])
        return sentences, weights


def named(model: CaptionNet) -> dict[str, Tensor]:
    tensors = {f"encoder.{name}": tensor for name, tensor in model.encoder.state_dict().items()}
    parts = {"bridge": model.bridge, "readout": model.readout, "projection": model.projection}
    parts |= {f"attention.{name}": getattr(model, name) for name in ("query", "key", "score")}
    tensors |= {f"decoder.{name}.{end}": x for name, part in parts.items() for end, x in part.named_parameters()}
    for (ours, theirs), end in product((("input", "ih"), ("state", "hh")), ("weight", "bias")):
        tensors[f"decoder.layers.0.{ours}.{end}"] = getattr(model.cell, f"{end}_{theirs}")
    return tensors | {"decoder.embedding.weight": model.embedding.weight}


def load(folder: Path, hard: bool = False) -> CaptionNet:
    model = CaptionNet(hard)
    model.load_state_dict(torch.load(folder / "torch.pth"))
    return model.eval()


def loss(model: CaptionNet, images: list[np.ndarray], sentences: list[str]) -> Tensor:
    """The mean cross entropy of the words and the ends."""
    target_BT = torch.full((len(sentences), MOST), -1)
    for b, sentence in enumerate(sentences):
        ids = [WORDS.index(word) for word in sentence.split()] + [0]
        target_BT[b, : len(ids)] = torch.tensor(ids)
    rows_BSD, state = model.begin(as_tensor(images))
    words_B, lost = torch.full((len(images),), WORDS.index("<s>")), torch.zeros(())
    for t in range(MOST):
        logits_BV, _, state = model.step(words_B, rows_BSD, state)
        lost = lost + nn.functional.cross_entropy(logits_BV, target_BT[:, t], ignore_index=-1, reduction="sum")
        words_B = target_BT[:, t].clamp(min=0)
    return lost / (target_BT >= 0).sum()


def train(archive: Path, into: Path, hard: bool = False) -> None:
    """Write model.pt, the words, the mapping that reads both, and torch.pth; no data is read."""
    torch.manual_seed(13)
    model = CaptionNet(hard)
    fit(model, STEPS, RATE, lambda step: loss(model, *examples(BATCH, step)), clip=True)
    images, sentences = examples(500, 0)
    right = np.mean([caption == sentence for caption, sentence in zip(model.caption(as_tensor(images))[0], sentences)])
    print(f"{100 * right:.1f}% of 500 unseen pictures described exactly")
    into.mkdir(parents=True, exist_ok=True)
    torch.save({name: tensor.detach().clone() for name, tensor in named(model).items()}, into / "model.pt")
    torch.save(model.state_dict(), into / "torch.pth")
    (into / "words.txt").write_text("".join(f"{word}\n" for word in WORDS), encoding="utf-8")
    (into / "fastattn.toml").write_text(MAPPING + hard * HARD, encoding="utf-8")
