"""The training of all models of ``bench.train``: Adam, with a rate that rises and falls once."""

import time
from collections.abc import Callable

import torch
from torch import Tensor, nn


def fit(
    model: nn.Module, steps: int, rate: float, loss: Callable[[int], Tensor], decay: float = 0.0, clip: bool = False
) -> None:
    """loss: a step's number, from 1 on, to its loss; clip: whether gradients are cut to a norm of 1."""
    optimizer = torch.optim.Adam(model.train().parameters(), rate, weight_decay=decay)
    schedule, start = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps, pct_start=0.1), time.perf_counter()
    for step in range(1, steps + 1):
        lost = loss(step)
        optimizer.zero_grad()
        lost.backward()
        if clip:
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 100 == 0:
            print(f"{step} of {steps} steps, loss {lost.item():.4f}, {time.perf_counter() - start:.0f} s", flush=True)
    model.eval()
