"""MarianMT directories in transformers: plain attention, float32."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.text_spec import TranslationText
from fastattn.verification.comparison import name_states
from fastattn.verification.encoders import FROM_HERE
from fastattn.verification.frameworks import blaming, framework, silence, versions

PACKAGES = ("transformers", "torch")


class MarianTranslator:
    """transformers' side of a comparison, a ``TranslatorSide``."""

    def __init__(self, path: Path, checkpoint: Checkpoint):
        transformers, self._torch = framework(*PACKAGES)
        self.name = versions(*PACKAGES)
        silence(transformers)
        assert isinstance(checkpoint.text, TranslationText)
        self._text = checkpoint.text
        self._source_ids = {token: i for i, token in enumerate(checkpoint.text.source_vocabulary)}
        self._target_ids = {token: i for i, token in enumerate(checkpoint.text.target_vocabulary)}
        with blaming(f"{path}: transformers cannot read it"):
            self._tokenizer = transformers.MarianTokenizer.from_pretrained(path, **FROM_HERE)
            model = transformers.MarianMTModel.from_pretrained(
                path, attn_implementation="eager", dtype=self._torch.float32, **FROM_HERE
            )
        self._model = model.eval()
        self._settings = model.generation_config

    def source_ids(self, text: str) -> list[int] | None:
        with blaming("transformers' tokenizer fails"):
            return list(self._tokenizer(text)["input_ids"])

    def states(self, source: Sequence[str], target: Sequence[str]) -> Mapping[str, np.ndarray]:
        found = self._run(source, target)
        named: dict[str, np.ndarray] = {}
        for stack in ("encoder", "decoder"):
            states = [rows[0].numpy() for rows in found[f"{stack}_hidden_states"]]
            named |= name_states(states, states[-1], f"{stack} ")  # norms follow each sublayer, none the stack
        return named

    def log_probs(self, source: Sequence[str], target: Sequence[str]) -> np.ndarray:
        logits_TV = self._run(source, target).logits[0].clone()
        logits_TV[:, self._never()] = -self._torch.inf
        targets = self._torch.tensor([*self._forced_and(target), self._target_ids[self._text.eos_token]])
        log_probs_T = self._torch.log_softmax(logits_TV, dim=1).gather(1, targets[:, None])[:, 0].numpy()
        return np.asarray(log_probs_T[len(self._text.decoding.forced_tokens) :])

    def translate(self, source: Sequence[str], beam_size: int, lengths: tuple[int, int]) -> list[str]:
        forced = len(self._text.decoding.forced_tokens)
        least, most = lengths
        with blaming("transformers' model fails"), self._torch.no_grad():
            (ids,) = self._model.generate(
                input_ids=self._given(source),
                num_beams=beam_size,
                do_sample=False,
                early_stopping=beam_size > 1,
                forced_eos_token_id=None,
                max_length=None,
                min_length=0,
                min_new_tokens=least + forced,
                max_new_tokens=most + forced,
            )
        end = self._target_ids[self._text.eos_token]
        found = ids.tolist()[1 + forced :]
        found = found[: found.index(end)] if end in found else found
        return [self._text.target_vocabulary[index] for index in found]

    def _run(self, source: Sequence[str], target: Sequence[str]) -> Any:
        """The model's output, given a target."""
        given = [self._settings.decoder_start_token_id, *self._forced_and(target)]
        with blaming("transformers' model fails"), self._torch.no_grad():
            return self._model(
                input_ids=self._given(source),
                decoder_input_ids=self._torch.tensor([given]),
                output_hidden_states=True,
            )

    def _given(self, source: Sequence[str]) -> Any:
        text = self._text
        ids = [self._source_ids.get(token, self._source_ids[text.unk_token]) for token in source]
        return self._torch.tensor([[*ids, self._source_ids[text.eos_token]]])

    def _forced_and(self, target: Sequence[str]) -> list[int]:
        return [self._target_ids[token] for token in (*self._text.decoding.forced_tokens, *target)]

    def _never(self) -> list[int]:
        """The ids that a search never chooses, whose probability a translation's tokens share here."""
        words = self._settings.bad_words_ids or []
        single = {word[0] for word in words if len(word) == 1} | {*(self._settings.suppress_tokens or ())}
        return sorted({*single, self._settings.pad_token_id} - {self._settings.eos_token_id})
