"""Memory of int8: of one process, compared with the peer, of two processes that share a model's packed weights."""

import re
import subprocess
import sys
from pathlib import Path

from bench.checks import Data, Findings, check
from bench.checks.compare import in_child, request
from bench.machine import ROOT


@check(
    "int8-memory",
    "zh-en, one thread: resident after a sentence at most 250 MB; the peak of 128, beam 4, at most CTranslate2's",
)
def memory(findings: Findings, data: Data) -> None:
    found = {
        engine: in_child(request(data, "resources", 1, item=f"translate {engine}", precision="int8"))
        for engine in ("fastattn", "CTranslate2")
    }
    ours, peer = ({name: run[name] / 1e6 for name in ("after_first", "resident")} for run in found.values())
    findings.at_most("after a sentence", ours["after_first"], "MB", 250, f"CTranslate2 {peer['after_first']:.0f} MB")
    findings.at_most("peak", ours["resident"], "MB", peer["resident"], "the limit is CTranslate2's")


HOLD = """
import sys, fastattn
translator = fastattn.Translator("zh-en", "int8", 1)
translator.translate(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


@check("int8-shared", "two processes on int8 zh-en: their packed weights are in memory once")
def shared(findings: Findings, data: Data) -> None:
    """Pss counts half of a page for each of two processes that map it: the sum is the weights' real memory."""
    command = [sys.executable, "-c", HOLD, data.flores("zh")[0]]
    holders = []
    try:
        for _ in range(2):
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            holders.append(subprocess.Popen(command, cwd=ROOT, **pipes))
            if holders[-1].stdout.readline() != "ready\n":
                raise RuntimeError("a process that should hold the model ended")
        found = [_packed_pages(holder.pid) for holder in holders]
    finally:
        for holder in holders:
            holder.communicate()  # ends the process
    resident, real = max(rss for rss, _ in found), sum(pss for _, pss in found)
    findings.at_least("packed weights mapped", resident / 1e6, "MB", 1, "resident in one process")
    findings.at_most("both together", real / 1e6, "MB", 1.1 * resident / 1e6)


def _packed_pages(pid: int) -> tuple[int, int]:
    """(Rss, Pss) of a process's mappings of packed weights, in bytes."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", Path(f"/proc/{pid}/smaps").read_text(), flags=re.MULTILINE)
    mine = [one for one in maps if re.match(r"\S+ \S+ \S+ \S+ \S+ +\S*/packed/[^/\n]*\n", one)]
    sizes = ([int(size) << 10 for one in mine for size in re.findall(rf"^{k}: +(\d+) kB", one, re.MULTILINE)]
             for k in ("Rss", "Pss"))  # fmt: skip
    rss, pss = (sum(values) for values in sizes)
    return rss, pss
