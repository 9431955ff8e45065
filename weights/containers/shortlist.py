"""Marian's lexical shortlists, the likely target ids for each source id: the binary form and the text form.

Binary: u64 {magic, checksum, first, best, number of offsets, number of ids}, the offsets u64, the ids u32. Source id s
adds the ids from offset s to offset s + 1; the ``first`` lowest target ids, the most frequent, may always be chosen.
The checksum covers the whole words of eight bytes that follow, so not an odd last id. Source ids beyond the last offset
add nothing.

Text, perhaps gzipped: a line has a target token, a source token and the probability. A source token adds its BEST most
probable targets, and the FIRST lowest target ids may always be chosen. A token outside a vocabulary stands for the
vocabulary's unknown token, NULL for no token. (marian-dev, src/data/shortlist.cpp.)
"""

import gzip
import io
import math
import struct
import zlib
from collections.abc import Iterator

import numpy as np

from fastattn.errors import CheckpointError
from fastattn.spec.checkpoint import Shortlist
from fastattn.weights.containers.json_file import shorten
from fastattn.weights.containers.zip_archive import most_unpacked
from fastattn.weights.folder import Folder

MAGIC = 0xF11A48D5013417F5
HEADER = struct.Struct("<6Q")
FIRST, BEST = 100, 100  # of a shortlist in text, which does not state them
LONGEST_LINE = 1 << 16  # bytes
UNKNOWN = "<unk>"


def read_shortlist(
    folder: Folder, name: str, source_vocabulary: tuple[str, ...], target_vocabulary: tuple[str, ...], shared: bool
) -> Shortlist:
    """The shortlist in the file ``name``; arrays are views of the file's bytes where possible.

    shared  whether source and target are one vocabulary, so that a sentence may copy its own tokens
    Raises CheckpointError for a damaged file, or one made for vocabularies of other sizes.
    """
    data, where = folder.read(name), folder.where(name)
    if data[:8] == MAGIC.to_bytes(8, "little"):
        first, starts_V1, targets = _parse_binary(data, where)
    else:
        first, (starts_V1, targets) = FIRST, _parse_text(data, source_vocabulary, target_vocabulary, where)
    always = np.arange(min(first, len(target_vocabulary)), dtype=np.int32)
    sources = len(source_vocabulary)
    check_shortlist(Shortlist(always, starts_V1, targets, shared), sources, len(target_vocabulary), where)
    starts_V1 = np.pad(starts_V1, (0, sources + 1 - len(starts_V1)), mode="edge").astype(np.int32)
    return Shortlist(always, starts_V1, targets.view(np.int32), shared)


def check_shortlist(shortlist: Shortlist, sources: int, outputs: int, where: str) -> None:
    """Raise one CheckpointError with all faults of a shortlist: ``sources`` and ``outputs`` are vocabularies' sizes."""
    starts_V1, targets = shortlist.starts_V1, shortlist.targets
    problems = []
    if not 1 <= len(starts_V1) <= sources + 1:
        problems.append(f"{len(starts_V1)} offsets, at most {sources + 1} go with a vocabulary of {sources} tokens")
    elif starts_V1[0] != 0 or starts_V1[-1] != len(targets) or (starts_V1[1:] < starts_V1[:-1]).any():
        problems.append(f"the offsets should rise from 0 to {len(targets)}")
    for ids in (shortlist.always, targets):
        if len(ids) and not 0 <= ids.min() <= ids.max() < outputs:
            fault = ids.min() if ids.min() < 0 else ids.max()
            problems.append(f"target id {fault} is outside the vocabulary of {outputs} tokens")
    if shortlist.copied and sources > outputs:
        problems.append(f"{sources} source tokens cannot be copied to a target vocabulary of {outputs}")
    if problems:
        raise CheckpointError(f"{where}: a shortlist that does not fit the model: {'; '.join(problems)}")


def _parse_binary(data: memoryview, where: str) -> tuple[int, np.ndarray, np.ndarray]:
    if len(data) < HEADER.size:
        raise CheckpointError(f"{where}: expected {HEADER.size} bytes of header, the file has {len(data)}")
    _, checksum, first, _, offsets, ids = HEADER.unpack(data[: HEADER.size])
    size = HEADER.size + 8 * offsets + 4 * ids
    if size != len(data):
        raise CheckpointError(f"{where}: {offsets} offsets and {ids} ids take {size} bytes, the file has {len(data)}")
    if ids > np.iinfo(np.int32).max:
        raise CheckpointError(f"{where}: {ids} ids are more than int32 counts")
    if _checksum(data[16:]) != checksum:
        raise CheckpointError(f"{where}: the checksum does not match, the shortlist is damaged")
    starts_V1 = np.frombuffer(data, "<u8", offsets, HEADER.size)
    return first, starts_V1, np.frombuffer(data, "<u4", ids, HEADER.size + 8 * offsets)


def _checksum(data: memoryview) -> int:
    """Marian's hash of memory, boost's hash_combine for each word: 0.08 s for the 560,000 words of a real shortlist."""
    words, mask, total = np.frombuffer(data, "<u8", len(data) // 8), (1 << 64) - 1, 0
    for begin in range(0, len(words), 1 << 16):
        for word in (words[begin : begin + (1 << 16)] + np.uint64(0x9E3779B9)).tolist():
            total ^= (word + (total << 6) + (total >> 2)) & mask
    return total


def _parse_text(
    data: memoryview, source_vocabulary: tuple[str, ...], target_vocabulary: tuple[str, ...], where: str
) -> tuple[np.ndarray, np.ndarray]:
    source_ids, target_ids = (
        {token.encode(): i for i, token in enumerate(vocabulary)}
        for vocabulary in (source_vocabulary, target_vocabulary)
    )
    unknown = UNKNOWN.encode()
    probabilities: list[dict[int, float]] = [{} for _ in source_vocabulary]  # of target ids, for each source id
    for target, source, probability in _read_lines(data, where):
        s, t = source_ids.get(source, source_ids.get(unknown)), target_ids.get(target, target_ids.get(unknown))
        if s is not None and t is not None and b"NULL" not in (source, target):
            probabilities[s][t] = probability
    starts_V1 = np.zeros(len(probabilities) + 1, np.int64)
    targets: list[int] = []
    for s, targets_of_source in enumerate(probabilities):
        best = sorted(((p, t) for t, p in targets_of_source.items() if p > 0), reverse=True)[:BEST]
        targets += sorted(t for _, t in best)
        starts_V1[s + 1] = len(targets)
    return starts_V1, np.array(targets, np.int32)


def _read_lines(data: memoryview, where: str) -> Iterator[tuple[bytes, bytes, float]]:
    stream: io.BufferedIOBase = io.BytesIO(data)
    limit = len(data)
    if data[:2] == b"\x1f\x8b":
        stream, limit = gzip.GzipFile(fileobj=stream), most_unpacked(len(data))
    number = size = 0
    try:
        while line := stream.readline(LONGEST_LINE):
            number += 1
            size += len(line)
            if size > limit:
                raise CheckpointError(f"{where}: unpacks to more than {limit} bytes, so this is no shortlist")
            fields = line.split()  # at ASCII white space, as in Marian: a token may contain other white space
            if fields:
                yield _parse_line(fields, f"{where}: line {number}")
    except (OSError, EOFError, zlib.error) as error:
        raise CheckpointError(f"{where}: cannot be unpacked: {' '.join(str(error).split())}") from None


def _parse_line(fields: list[bytes], where: str) -> tuple[bytes, bytes, float]:
    try:
        target, source, number = fields
        probability = float(number)
    except ValueError:
        probability = math.nan
    if not math.isfinite(probability):
        fault = shorten(b" ".join(fields[:4]).decode("utf-8", "backslashreplace"))
        raise CheckpointError(f"{where} should be 'target source probability', or the file a binary shortlist: {fault}")
    return target, source, probability
