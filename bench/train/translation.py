"""French to English: networks of PyTorch's tutorial "translation with a sequence to sequence network and attention".

The tutorial pads its sentences and reads the padding; here sentences are packed, and no attention sees padding. The
sentences are tatoeba.org's: ``fra-eng.zip`` of www.manythings.org/anki, CC BY 2.0.
"""

import random
import re
import zipfile
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from bench.train.fitting import fit

SPECIAL = ("SOS", "EOS", "<unk>")
SOS, EOS, UNKNOWN = range(3)
LONGEST = 12  # words of a pair that is learned, in either language
Pair = tuple[list[str], list[str]]


def words(text: str) -> list[str]:
    """Lower-case words and signs; an apostrophe ends its word."""
    return re.findall(r"\w+'?|[^\w\s]", text.lower().replace("’", "'"))


def pairs(archive: Path) -> tuple[list[Pair], list[Pair]]:
    """(learned, held out): one in 40 English sentences, of any length, is held out with all its French ones."""
    lines = zipfile.ZipFile(archive).read("fra.txt").decode().splitlines()
    split = [(words(french), words(english)) for english, french, _ in (line.split("\t") for line in lines)]
    rng = random.Random(5)
    held = {english for english in sorted({" ".join(english) for _, english in split}) if rng.random() < 1 / 40}
    short = [pair for pair in split if max(map(len, pair)) <= LONGEST]
    return (
        [pair for pair in short if " ".join(pair[1]) not in held],
        [(french, english) for french, english in split if " ".join(english) in held],
    )


def vocabulary(sentences: list[list[str]], size: int) -> list[str]:
    """The special words, then the most frequent words, ``size`` in all."""
    counts = Counter(word for sentence in sentences for word in sentence)
    return [*SPECIAL, *(word for word, _ in counts.most_common(size - len(SPECIAL)))]


def ids(sentence: list[str], numbers: dict[str, int]) -> list[int]:
    """The ids of the words, then EOS."""
    return [*(numbers.get(word, UNKNOWN) for word in sentence), EOS]


WIDTH = 256


class Memory(NamedTuple):
    """The encoder's rows of a batch of sentences, the rows' keys, and whether a place has a word."""

    rows_BSH: Tensor
    keys_BSH: Tensor
    there_BS: Tensor


class EncoderRNN(nn.Module):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, source_BS: Tensor, lengths_B: Tensor) -> tuple[Tensor, Tensor]:
        """Rows (B, S, WIDTH), zeros past a sentence's end, and the last states (1, B, WIDTH)."""
        packed = pack_padded_sequence(self.embedding(source_BS), lengths_B, batch_first=True, enforce_sorted=False)
        rows, last_1BH = self.gru(packed)
        return pad_packed_sequence(rows, batch_first=True)[0], last_1BH


class BahdanauAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.Wa, self.Ua, self.Va = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, query_B1H: Tensor, memory: Memory) -> Tensor:
        """The context (B, 1, WIDTH)."""
        scores_BS = self.Va(torch.tanh(self.Wa(query_B1H) + memory.keys_BSH)).squeeze(2)
        weights_BS = scores_BS.masked_fill(~memory.there_BS, -torch.inf).softmax(1)
        return weights_BS[:, None] @ memory.rows_BSH


class AttnDecoderRNN(nn.Module):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.attention = BahdanauAttention()
        self.gru = nn.GRU(2 * WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, vocabulary)

    def memory(self, rows_BSH: Tensor, lengths_B: Tensor) -> Memory:
        """The memory of all steps; the tutorial computes the keys at each step."""
        return Memory(rows_BSH, self.attention.Ua(rows_BSH), torch.arange(rows_BSH.shape[1]) < lengths_B[:, None])

    def forward(self, inputs_BT: Tensor, memory: Memory, state_1BH: Tensor) -> tuple[Tensor, Tensor]:
        """The states of all steps (B, T, WIDTH), which ``out`` takes, and the last one (1, B, WIDTH)."""
        states = []
        for embedded_BE in self.embedding(inputs_BT).unbind(1):
            context_B1H = self.attention(state_1BH.transpose(0, 1), memory)
            joined_B1I = torch.cat([embedded_BE[:, None], context_B1H], 2)
            state_B1H, state_1BH = self.gru(joined_B1I, state_1BH)
            states.append(state_B1H)
        return torch.cat(states, 1), state_1BH


class DecoderRNN(nn.Module):
    def __init__(self, vocabulary: int):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, WIDTH)
        self.gru = nn.GRU(WIDTH, WIDTH, batch_first=True)
        self.out = nn.Linear(WIDTH, vocabulary)

    def memory(self, rows_BSH: Tensor, lengths_B: Tensor) -> None:
        """None: the decoder has no attention."""

    def forward(self, inputs_BT: Tensor, memory: None, state_1BH: Tensor) -> tuple[Tensor, Tensor]:
        """The same as AttnDecoderRNN.forward."""
        return self.gru(F.relu(self.embedding(inputs_BT)), state_1BH)


DECODERS = {"attention": AttnDecoderRNN, "plain": DecoderRNN}


class Translator(nn.Module):
    """An encoder and one of ``DECODERS``; its tensors have the names of the tutorial's files."""

    def __init__(self, decoder: str, source_words: int, target_words: int):
        super().__init__()
        self.encoder, self.decoder = EncoderRNN(source_words), DECODERS[decoder](target_words)

    def read(self, sources: list[Tensor]) -> tuple[Memory | None, Tensor]:
        """The decoder's inputs: the memory and the encoder's last states."""
        lengths_B = torch.tensor([len(source) for source in sources])
        rows_BSH, last_1BH = self.encoder(pad_sequence(sources, batch_first=True), lengths_B)
        return self.decoder.memory(rows_BSH, lengths_B), last_1BH

    def loss(self, sources: list[Tensor], targets: list[Tensor]) -> Tensor:
        """The mean cross entropy of the targets' words; each sentence ends in EOS."""
        target_BT = pad_sequence(targets, batch_first=True, padding_value=-1)
        inputs_BT = F.pad(target_BT.clamp(min=0)[:, :-1], (1, 0), value=SOS)
        states_BTH, _ = self.decoder(inputs_BT, *self.read(sources))
        learned = target_BT >= 0
        return F.cross_entropy(self.decoder.out(states_BTH[learned]), target_BT[learned])

    @torch.inference_mode()
    def translate(self, sources: list[Tensor], most: int) -> list[list[int]]:
        """The most probable word at each of at most ``most`` steps, up to EOS, which is left out."""
        memory, state_1BH = self.read(sources)
        steps = [torch.full((len(sources), 1), SOS)]
        ended_B1 = torch.zeros(len(sources), 1, dtype=torch.bool)
        while len(steps) <= most and not ended_B1.all():
            state_B1H, state_1BH = self.decoder(steps[-1], memory, state_1BH)
            steps.append(self.decoder.out(state_B1H).argmax(2))
            ended_B1 = ended_B1 | (steps[-1] == EOS)
        rows = torch.cat(steps[1:], 1).tolist()
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]


SOURCE_WORDS, TARGET_WORDS = 8000, 5000
BATCH, STEPS, RATE = 96, 1600, 2e-3


def batches(pairs: list[Pair], steps: int) -> list[list[Pair]]:
    """``steps`` batches of targets of like length, in random order."""
    rng, result = random.Random(7), []
    while len(result) < steps:
        mixed = sorted(rng.sample(pairs, len(pairs)), key=lambda pair: len(pair[1]))  # stable: mixed within a length
        epoch = [mixed[at : at + BATCH] for at in range(0, len(mixed), BATCH)]
        rng.shuffle(epoch)
        result += epoch
    return result[:steps]


def train(decoder: str, archive: Path, into: Path, steps: int = STEPS) -> None:
    """Write model.pt and its words, the mapping that reads it, and held-out.tsv: French and English words a line."""
    torch.manual_seed(11)
    learned, held = pairs(archive)
    vocabularies = [
        vocabulary([pair[i] for pair in learned], size) for i, size in enumerate((SOURCE_WORDS, TARGET_WORDS))
    ]
    source_numbers, target_numbers = ({word: i for i, word in enumerate(words)} for words in vocabularies)
    into.mkdir(parents=True, exist_ok=True)
    for name, words in zip(("source.txt", "target.txt"), vocabularies):
        (into / name).write_text("".join(word + "\n" for word in words), encoding="utf-8", newline="\n")
    lines = "".join(" ".join(french) + "\t" + " ".join(english) + "\n" for french, english in held)
    (into / "held-out.tsv").write_text(lines, encoding="utf-8", newline="\n")

    mapping = {"attention": "pytorch-attention", "plain": "pytorch-seq2seq"}[decoder]
    (into / "fastattn.toml").write_text(f'like = "{mapping}"\n', encoding="utf-8", newline="\n")

    model, training = Translator(decoder, *map(len, vocabularies)), batches(learned, steps)

    def loss(step: int) -> Tensor:
        sources = [torch.tensor(ids(french, source_numbers)) for french, _ in training[step - 1]]
        return model.loss(sources, [torch.tensor(ids(english, target_numbers)) for _, english in training[step - 1]])

    fit(model, steps, RATE, loss, clip=True)
    torch.save(model.state_dict(), into / "model.pt")
