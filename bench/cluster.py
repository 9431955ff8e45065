"""Time and cost of a billion sentences on a cluster, computed: bench/__main__.py's command ``cluster``.

An actor's speed, start and files are measured here (``cluster_measure``), and ``cluster_model`` computes a job's time
from that in closed form. What nobody measured is an assumption, and the document says which.
"""

import sys
from dataclasses import replace
from pathlib import Path

from bench.cluster_measure import THREADS, Figures, measure
from bench.cluster_model import REQUESTS, Cluster, Job, Parts, block_bytes, calm, computed, cut
from bench.document import Section, markdown
from bench.lock import MODELS
from bench.machine import describe
from fastattn.processes.choice import LOCK_SHARES, chosen_processes, rate_under_lock

SENTENCES, INPUTS = 10**9, 1000  # the latter are files
CORES, MACHINES = 16, (1, 10, 100)
WORTH_NAMING = 0.03  # of the time, below which nothing but the work is what limits
# Dollars: a thousand requests that write, and that read (list prices of an object store).
WRITES, READS = 0.005, 0.0004


def job_of(figures: Figures, size: int | None = None) -> Job:
    """The job of SENTENCES on machines of CORES, whose actors are as many as a Translator's processes would be.

    size  bytes of a block; None: as an input of so many bytes is cut
    """
    input_bytes = int(SENTENCES * figures.bytes_in)
    actors, threads = shared(figures)
    share = next(share for most, share in LOCK_SHARES if figures.weights <= most)
    faster = rate_under_lock(1.0, share, threads) / rate_under_lock(1.0, share, THREADS)
    return Job(
        cut(input_bytes, INPUTS, size or block_bytes(input_bytes), figures.bytes_in),
        figures.rate * faster,
        actors,
        figures.cold,
        figures.warm,
        figures.own_storage,
        figures.bytes_in + figures.bytes_out,
    )


def shared(figures: Figures) -> tuple[int, int]:
    """(actors of a machine, threads of each)."""
    actors = chosen_processes(CORES, figures.weights)
    return actors, CORES // actors


def dollars(seconds: float, machines: int, price: float, blocks: int) -> float:
    """Machines from their start to the job's end, and requests: half of them write."""
    return machines * seconds / 3600 * price + blocks * REQUESTS / 2 * (WRITES + READS) / 1000


def limit(parts: Parts) -> str:
    """What takes most of the time beside the work."""
    names = {
        "start": parts.start,
        "storage": parts.storage,
        "lost machines": parts.lost,
        "last blocks": parts.last,
    }
    name, seconds = max(names.items(), key=lambda item: item[1])
    share = seconds / parts.seconds
    return f"{name}, {share:.0%}" if share >= WORTH_NAMING else f"cores ({name}, {share:.1%})"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.3g} min" if seconds < 7200 else f"{seconds / 3600:.3g} h"


def measured_table(found: list[Figures]) -> str:
    head = [
        "model, int8",
        f"{THREADS} threads",
        "actors, threads",
        "a machine",
        "start, warm",
        "cold",
        "block",
        "its files",
    ]
    lines = []
    for figures in found:
        job, (actors, threads) = job_of(figures), shared(figures)
        count = float(job.sentences_B.max())
        lines.append([
            figures.name,
            f"{figures.rate:.0f} a second",
            f"{actors} x {threads}",
            f"{actors * job.rate:.0f} a second",
            f"{figures.warm:.2f} s",
            f"{figures.cold:.1f} s",
            f"{count:.0f} sentences, {duration(count / job.rate)}",
            f"{1e3 * count * figures.own_storage:.0f} ms",
        ])  # fmt: skip
    return markdown(head, lines)


def cluster_table(found: list[Figures], price: float) -> str:
    head = ["model, machines", "time", "cost", "start", "work", "storage", "lost", "last blocks", "limited by"]
    lines = []
    for figures in found:
        job = job_of(figures)
        for machines in MACHINES:
            parts = computed(job, Cluster(machines))
            lines.append([
                f"{figures.name}, {machines}",
                duration(parts.seconds),
                f"{dollars(parts.seconds, machines, price, len(job.sentences_B)):.2f} $",
                *(duration(each) for each in (parts.start, parts.work, parts.storage, parts.lost, parts.last)),
                limit(parts),
            ])  # fmt: skip
    return markdown(head, lines)


def disturbances(machines: int) -> dict[str, Cluster]:
    """One thing after the other that comes to a cluster."""
    even, full = calm(machines), Cluster(machines)
    three = replace(even, held=3, at_once=3)
    spread = replace(three, spread=full.spread)
    slow = replace(spread, slow=full.slow)
    return {
        "machines of one speed, none lost; an actor has 1 block": even,
        "3 blocks, all in progress": three,
        f"and speeds that differ by {full.spread:.0%}": spread,
        f"and {full.slow_machines} machines of half speed": slow,
        "4 blocks, of which 1 waits": replace(slow, held=4),
        "6 blocks, of which 3 wait": replace(slow, held=6),
        f"3 blocks; and {full.losses:g} losses a machine-hour": full,
        "the same, lost blocks being the next to be given out": replace(full, passes=False),
    }


def disturbance_table(figures: Figures) -> str:
    job, machines = job_of(figures), MACHINES[-1]
    larger = job_of(figures, size=4 * int(job.sentences_B.max() * figures.bytes_in))
    rows = [(name, job, cluster) for name, cluster in disturbances(machines).items()]
    rows.append((f"{len(larger.sentences_B)} blocks, four times as large", larger, Cluster(machines)))
    lines = [[name, duration(computed(work, cluster).seconds)] for name, work, cluster in rows]
    return markdown([f"{figures.name} on {machines} machines", "time"], lines)


def assumptions(price: float) -> str:
    known = Cluster(1)
    return (
        f"Assumed: {CORES} cores a machine, each as fast as one here; {price:.2f} dollars a machine-hour; speeds of\n"
        f"machines that differ by {known.spread:.0%} (log-normal), {known.slow:.0%} of them at half speed;\n"
        f"{known.losses:g} losses a machine-hour, another machine in its place {duration(known.away)} later; storage\n"
        f"of {known.bandwidth / 1e6:.0f} MB/s a machine, {1e3 * known.latency:.0f} ms for each of {REQUESTS} requests "
        f"a block, {WRITES} and {READS} dollars\na thousand writes and reads; {INPUTS} input files. "
        f"Ray 2.60 lays out a block in {1e3 * known.laying:.2g} ms, as was measured with two cores."
    )


def document_text(found: list[Figures], price: float) -> str:
    parts = [
        f"{SENTENCES:,} sentences. Measured on {describe()['machine']['cpu']}, {THREADS} threads:",
        measured_table(found),
        assumptions(price),
        cluster_table(found, price),
        disturbance_table(found[0]),
    ]
    return "\n\n".join(parts) + "\n"


def run(size: str, only: str, data: Path | None, price: float, document: Path | None) -> int:
    """Print the tables; with a document, write them between its marks; the exit status."""
    section = Section(document, "cluster")
    if section.is_missing():
        return 2
    found = []
    for name in (name for name in MODELS if only in f"{name} int8"):
        found.append(measure(name, size, data))
        print(f"measured: {found[-1]}", file=sys.stderr)
    if not found:
        print(f"no model's name contains {only!r}; there are {', '.join(MODELS)}", file=sys.stderr)
        return 2
    section.show(document_text(found, price))
    return 0
