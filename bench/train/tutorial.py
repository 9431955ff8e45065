"""The networks of PyTorch's tutorial "translation with a sequence to sequence network and attention", by its names.

The tutorial pads its sentences and reads the padding; here sentences are packed, and no attention sees padding.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from bench.train.tatoeba import EOS, SOS

WIDTH = 256


class Memory(NamedTuple):
    """Of a batch of sentences the encoder's rows, their keys, and where there is a word."""

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
        """What all steps attend to; the tutorial computes the keys at each step."""
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
        """It looks at no rows."""

    def forward(self, inputs_BT: Tensor, memory: None, state_1BH: Tensor) -> tuple[Tensor, Tensor]:
        """As of AttnDecoderRNN."""
        return self.gru(F.relu(self.embedding(inputs_BT)), state_1BH)


DECODERS = {"attention": AttnDecoderRNN, "plain": DecoderRNN}


class Translator(nn.Module):
    """An encoder and a decoder, of ``DECODERS``: the names of its tensors are those of the file."""

    def __init__(self, decoder: str, source_words: int, target_words: int):
        super().__init__()
        self.encoder, self.decoder = EncoderRNN(source_words), DECODERS[decoder](target_words)

    def read(self, sources: list[Tensor]) -> tuple[Memory | None, Tensor]:
        """What the decoder takes: the memory, and the encoder's last states."""
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
        made = [torch.full((len(sources), 1), SOS)]
        ended_B1 = torch.zeros(len(sources), 1, dtype=torch.bool)
        while len(made) <= most and not ended_B1.all():
            state_B1H, state_1BH = self.decoder(made[-1], memory, state_1BH)
            made.append(self.decoder.out(state_B1H).argmax(2))
            ended_B1 = ended_B1 | (made[-1] == EOS)
        rows = torch.cat(made[1:], 1).tolist()
        return [row[: row.index(EOS)] if EOS in row else row for row in rows]
