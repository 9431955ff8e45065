"""Peers of a decoder: llama.cpp; transformers and ONNX Runtime GenAI with a shape's weights, and their folders."""

import ctypes
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.decoder_shapes import Shape
from fastattn.simd.target import compiled_features
from fastattn.system.cache_folder import cache_root

BATCH = 512


class LlamaCpp:
    """A GGUF file's model. Its own sampler is left out: the argmax of its logits is taken here, as it takes it.

    flash  False: attention in other steps, with float32 between them: what llama.cpp differs from itself by
    """

    def __init__(self, path: Path, threads: int, sequences: int = 1, context: int = 2048, flash: bool = True):
        import llama_cpp

        self.library: Any = llama_cpp
        llama_cpp.llama_backend_init()
        silent = llama_cpp.llama_log_callback(lambda level, text, data: None)
        llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
        self._silent = silent  # which C calls as long as it lives
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        wanted = llama_cpp.llama_context_default_params()
        wanted.n_ctx, wanted.n_batch, wanted.n_ubatch, wanted.n_seq_max = sequences * context, BATCH, BATCH, sequences
        wanted.n_threads = wanted.n_threads_batch = threads
        if not flash:
            wanted.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        self.context = llama_cpp.llama_init_from_model(self.model, wanted)
        vocabulary = llama_cpp.llama_model_get_vocab(self.model)
        self.words = llama_cpp.llama_vocab_n_tokens(vocabulary)
        self._vocabulary = vocabulary
        self._batch = llama_cpp.llama_batch_init(max(BATCH, sequences), 0, 1)

    def ids(self, text: str, special: bool = False) -> list[int]:
        data = text.encode()
        room = (self.library.llama_token * (len(data) + 8))()
        count = self.library.llama_tokenize(self._vocabulary, data, len(data), room, len(room), True, special)
        return list(room[:count])

    def run(self, tokens: Sequence[int], places: Sequence[tuple[int, int]], wanted: Sequence[bool]) -> None:
        """One pass over tokens at (sequence, position); logits of those that are wanted."""
        batch = self._batch
        batch.n_tokens = len(tokens)
        for i, (token, (sequence, position), is_wanted) in enumerate(zip(tokens, places, wanted)):
            batch.token[i], batch.pos[i], batch.n_seq_id[i] = token, position, 1
            batch.seq_id[i][0], batch.logits[i] = sequence, is_wanted
        if self.library.llama_decode(self.context, batch):
            raise RuntimeError("llama_decode failed")

    def clear(self) -> None:
        self.library.llama_memory_clear(self.library.llama_get_memory(self.context), True)

    def logits(self, row: int) -> np.ndarray:
        """Of a row of the last pass."""
        return np.ctypeslib.as_array(self.library.llama_get_logits_ith(self.context, row), (self.words,))

    def read(self, prompt: Sequence[int], sequence: int = 0) -> int:
        """The most probable token behind a prompt, which goes through in passes of at most BATCH tokens."""
        for first in range(0, len(prompt), BATCH):
            part = prompt[first : first + BATCH]
            last = [False] * (len(part) - 1) + [first + BATCH >= len(prompt)]
            self.run(part, [(sequence, first + i) for i in range(len(part))], last)
        return int(self.logits(len(part) - 1).argmax())

    def answer(self, prompts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """The next ``count`` tokens of each prompt, the prompts one after the other, the steps together."""
        self.clear()
        found = [[self.read(prompt, number)] for number, prompt in enumerate(prompts)]
        for step in range(1, count):
            places = [(number, len(prompt) + step - 1) for number, prompt in enumerate(prompts)]
            self.run([one[-1] for one in found], places, [True] * len(found))
            for row, one in enumerate(found):
                one.append(int(self.logits(row).argmax()))
        return found

    def gap(self, tokens: Sequence[int], other: int) -> float:
        """How far the best token behind at most BATCH others has its logit above another one's."""
        self.clear()
        best = self.read(tokens)
        row = self.logits(len(tokens) - 1)
        return float(row[best] - row[other])

    def log_probs(self, tokens: Sequence[int]) -> np.ndarray:
        """Of each token behind the first."""
        self.clear()
        found: list[float] = []
        for first in range(0, len(tokens) - 1, BATCH):
            part = tokens[first : min(first + BATCH, len(tokens) - 1)]
            self.run(part, [(0, first + i) for i in range(len(part))], [True] * len(part))
            for i in range(len(part)):
                row = self.logits(i).astype(np.float64)
                found.append(row[tokens[first + i + 1]] - np.logaddexp.reduce(row))
        return np.array(found)


def transformers_folder(shape: Shape) -> Path:
    folder = cache_root() / "bench" / f"{shape.name}-transformers"
    if not folder.exists():
        import torch
        from tokenizers import Tokenizer, models
        from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

        part = folder.with_suffix(".part")
        AutoModelForCausalLM.from_config(shape.config(), dtype=torch.bfloat16).save_pretrained(part)
        # of bytes: GenAI's builder wants one, and ids are all that the peers are given here
        tokenizer = Tokenizer(models.BPE({chr(n): n for n in range(256)}, []))
        PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained(part)
        part.rename(folder)
    return folder


def genai_folder(source: Path, precision: str = "int4") -> Path:
    """What GenAI's builder makes of a folder for the CPU; with int4, inputs are int8, as its documents advise."""
    folder = source.with_name(f"{source.name}-genai-{precision}")
    if not folder.exists():
        part = folder.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)
        command = [sys.executable, "-m", "onnxruntime_genai.models.builder", "-i", str(source), "-o", str(part)]
        command += ["-p", precision, "-e", "cpu", "-c", str(part / "cache")]
        command += ["--extra_options", "accuracy_level=4"] * (precision == "int4")
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"ONNX Runtime GenAI's builder: {done.stderr.strip().rpartition(chr(10))[2]}")
        part.rename(folder)
    return folder


class Transformers:
    """``name`` has the dtype: bfloat16 where the CPU multiplies it, else float32, which is several times as fast."""

    def __init__(self, folder: Path):
        import torch
        from transformers import AutoModelForCausalLM

        self._torch: Any = torch
        kind = "bfloat16" if {"avx512bf16", "amx-bf16", "bf16"} & compiled_features() else "float32"
        self.name = f"transformers {kind}"
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, kind)).eval()

    def answer(self, prompts: list[list[int]], count: int) -> Any:
        """Greedy tokens behind prompts of one length; its threads are torch's."""
        ids = self._torch.tensor(prompts)
        with self._torch.inference_mode():
            return self._model.generate(
                ids,
                attention_mask=self._torch.ones_like(ids),
                max_new_tokens=count,
                min_new_tokens=count,
                do_sample=False,
                pad_token_id=0,
            )


class GenAI:
    def __init__(self, folder: Path, threads: int):
        import onnxruntime_genai

        self._library: Any = onnxruntime_genai
        config = onnxruntime_genai.Config(str(folder))
        options = {"intra_op_num_threads": threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": options}}}))
        self._model = onnxruntime_genai.Model(config)

    def answer(self, prompts: list[list[int]], count: int) -> Any:
        length = len(prompts[0]) + count
        options = self._library.GeneratorParams(self._model)
        options.set_search_options(
            batch_size=len(prompts), max_length=length, min_length=length, do_sample=False, num_beams=1
        )
        generator = self._library.Generator(self._model, options)
        generator.append_tokens(np.array(prompts, np.int32))
        for _ in range(count):
            generator.generate_next_token()
        return [generator.get_sequence(b)[-count:] for b in range(len(prompts))]
