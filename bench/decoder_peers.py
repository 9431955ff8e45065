"""transformers and ONNX Runtime GenAI with a decoder's weights, and the folders that they read."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.decoder_shapes import Shape
from fastattn.simd.target import compiled_features
from fastattn.system.cache_folder import cache_root


def transformers_folder(shape: Shape) -> Path:
    """transformers' own folder of a shape, with random weights in bfloat16."""
    folder = cache_root() / "bench" / f"{shape.name}-transformers"
    if not folder.exists():
        import torch
        from transformers import AutoModelForCausalLM

        part = folder.with_suffix(".part")
        AutoModelForCausalLM.from_config(shape.config(), dtype=torch.bfloat16).save_pretrained(part)
        _tokenizer().save_pretrained(part)
        part.rename(folder)
    return folder


def _tokenizer() -> Any:
    """Of bytes: GenAI's builder wants one, and ids are all that the peers are given here."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    return PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE({chr(n): n for n in range(256)}, [])))


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
        """Greedy tokens behind prompts of one length."""
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
