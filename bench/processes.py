"""The processes of this machine, from /proc: their parents, titles and memory. Linux only."""

import contextlib
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Process:
    """title     its command line, which the process itself may change
    resident  bytes now
    """

    number: int
    parent: int
    title: str
    resident: int


def processes() -> dict[int, Process]:
    """{number: process} of all living processes; zombies are left out."""
    alive = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError, IndexError):  # it ended meanwhile
                state, parent = (folder / "stat").read_text().rpartition(")")[2].split()[:2]
                title = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()
                pages = int((folder / "statm").read_text().split()[1])
                if state not in "ZX":
                    alive[int(folder.name)] = Process(int(folder.name), int(parent), title, pages * _PAGE)
    return alive


def below(roots: Iterable[int]) -> list[Process]:
    """The living processes of ``roots``, and all their descendants."""
    alive = processes()
    children: dict[int, list[int]] = {}
    for process in alive.values():
        children.setdefault(process.parent, []).append(process.number)
    tree, pending = {}, [number for number in roots if number in alive]
    while pending:
        number = pending.pop()
        if number not in tree:
            tree[number] = alive[number]
            pending += children.get(number, [])
    return list(tree.values())


def marked(mark: str) -> list[Process]:
    """The processes with ``mark``, a NAME=VALUE, in the environment that they started with; children inherit it."""
    matches = []
    for process in processes().values():
        with contextlib.suppress(OSError):
            if mark.encode() in Path(f"/proc/{process.number}/environ").read_bytes().split(b"\0"):
                matches.append(process)
    return matches
