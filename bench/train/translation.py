"""The tutorial's networks on tatoeba's pairs, French to English: a folder of ``model.pt`` and its words."""

import random
import time
from pathlib import Path

import torch

from bench.train import tatoeba
from bench.train.tutorial import Translator

SOURCE_WORDS, TARGET_WORDS = 8000, 5000
BATCH, STEPS, RATE = 96, 1600, 2e-3


def batches(pairs: list[tatoeba.Pair], steps: int) -> list[list[tatoeba.Pair]]:
    """``steps`` batches of targets of like length, in random order."""
    chosen, made = random.Random(7), []
    while len(made) < steps:
        mixed = sorted(chosen.sample(pairs, len(pairs)), key=lambda pair: len(pair[1]))  # stable: mixed within a length
        epoch = [mixed[at : at + BATCH] for at in range(0, len(mixed), BATCH)]
        chosen.shuffle(epoch)
        made += epoch
    return made[:steps]


def train(decoder: str, archive: Path, into: Path, steps: int = STEPS) -> None:
    """Write model.pt and its words, the mapping that reads it, and held-out.tsv: French and English words a line."""
    torch.manual_seed(11)
    learned, held = tatoeba.pairs(archive)
    vocabularies = [
        tatoeba.vocabulary([pair[i] for pair in learned], size) for i, size in enumerate((SOURCE_WORDS, TARGET_WORDS))
    ]
    source_numbers, target_numbers = ({word: i for i, word in enumerate(words)} for words in vocabularies)
    into.mkdir(parents=True, exist_ok=True)
    for name, words in zip(("source.txt", "target.txt"), vocabularies):
        (into / name).write_text("".join(word + "\n" for word in words), encoding="utf-8", newline="\n")
    lines = "".join(" ".join(french) + "\t" + " ".join(english) + "\n" for french, english in held)
    (into / "held-out.tsv").write_text(lines, encoding="utf-8", newline="\n")

    mapping = {"attention": "pytorch-attention", "plain": "pytorch-seq2seq"}[decoder]
    (into / "fastattn.toml").write_text(f'like = "{mapping}"\n', encoding="utf-8", newline="\n")

    model, start = Translator(decoder, *map(len, vocabularies)), time.perf_counter()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, steps, pct_start=0.1)
    for step, batch in enumerate(batches(learned, steps), 1):
        sources = [torch.tensor(tatoeba.ids(french, source_numbers)) for french, _ in batch]
        targets = [torch.tensor(tatoeba.ids(english, target_numbers)) for _, english in batch]
        optimizer.zero_grad()
        loss = model.loss(sources, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"{step} of {steps} steps, {time.perf_counter() - start:.0f} s, loss {loss.item():.3f}", flush=True)
    torch.save(model.state_dict(), into / "model.pt")
