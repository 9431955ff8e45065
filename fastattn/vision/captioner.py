"""Captioner: pictures in, sentences and each word's attention out."""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from fastattn.decoding.options import DecodingOptions, resolve_options
from fastattn.decoding.search import Hypothesis, Job, score_plan, search_plan
from fastattn.decoding.worker import DecodingService
from fastattn.errors import CheckpointError, check_count, check_several
from fastattn.loading.loaded_model import ModelBase
from fastattn.spec.checkpoint import Checkpoint
from fastattn.spec.images import PictureSpec, ResidualSpec
from fastattn.spec.text_spec import TranslationText
from fastattn.vision.pictures import is_picture, load_image, pixel_rows

DEFAULT_BEAMS = 3


class Caption(NamedTuple):
    """A sentence about a picture.

    score          the sum of the log-probabilities of the words and the end, over their number to the power of the
                   length penalty
    attention_WYX  each word's attention: float32 shares, with sum 1, of the cells of a grid over the whole image
    """

    text: str
    words: list[str]
    score: float
    attention_WYX: np.ndarray


class Captioner(ModelBase):
    """Describes pictures by a convolutional encoder, to whose grid a recurrent decoder attends (Xu 2015).

    A caption depends on its own picture alone. Raises CheckpointError for a path without a checkpoint of such a model.
    """

    _text: TranslationText
    _picture_spec: PictureSpec
    _spec: ResidualSpec

    def _check(self, checkpoint: Checkpoint) -> Checkpoint:
        spec, text, pictures = checkpoint.spec.encoder, checkpoint.input, checkpoint.pictures
        if not isinstance(spec, ResidualSpec) or not isinstance(text, TranslationText) or pictures is None:
            raise CheckpointError(f"expected a checkpoint that describes pictures, got one of {checkpoint.spec.kind!r}")
        self._spec, self._text, self._picture_spec = spec, text, pictures
        return checkpoint

    def _prepare(self) -> None:
        self._words = self._text.target_vocabulary
        start_and_end = self._text.decoder_start_token, self._text.eos_token
        self._start, self._end = (self._words.index(str(token)) for token in start_and_end)
        self._service = DecodingService(self._loaded.model, self._end, -1, self._loaded.threads)

    def caption(
        self, images: Any, *, beam_size: int = DEFAULT_BEAMS, num_hypotheses: int = 1
    ) -> Caption | list[Caption] | list[list[Caption]]:
        """The Caption of a picture, or a list of the Captions of several pictures.

        images          a path, an image of Pillow, an array of uint8 [Y, X, 3] or [Y, X]; or an iterable of these
        beam_size       how many sentences each step keeps; 1: greedy search
        num_hypotheses  above 1: each picture has a list of so many Captions, the best first, in place of one
        Raises InputError for anything but a sound picture.
        """
        check_count("beam_size", beam_size)
        options = self._options(beam_size, num_hypotheses)
        is_single = is_picture(images)
        pictures = [images] if is_single else check_several("images", images, "a picture or several")
        image_list = [load_image(picture, number, self._picture_spec) for number, picture in enumerate(pictures)]
        captions_B = self.caption_images(image_list, options)
        results: Any = [captions if num_hypotheses > 1 else captions[0] for captions in captions_B]
        return results[0] if is_single else results

    def _options(self, beam_size: int, num_hypotheses: int) -> DecodingOptions:
        options = {"beam_size": beam_size, "num_hypotheses": num_hypotheses, "return_attention": True}
        return resolve_options(self._text.decoding.options(), options)

    def caption_images(self, images: Iterable[np.ndarray], options: DecodingOptions) -> list[list[Caption]]:
        """The Captions of each image; images are float32 [3, Y, X], as from ``load_image``."""
        jobs = [Job(pixel_rows(image_CYX, self._spec), [self._start], options=options) for image_CYX in images]
        hypotheses_B = self._service.scheduler().run(lambda: search_plan(jobs, self._service.model.sizes))
        return [[self._caption(hypothesis) for hypothesis in hypotheses] for hypotheses in hypotheses_B]

    @property
    def image_spec(self) -> PictureSpec:
        """How a picture becomes an image."""
        return self._picture_spec

    def image_changes(self, image_CYX: np.ndarray) -> Callable[[list[np.ndarray]], np.ndarray]:
        """For ``saliency``: from variants of an image to the log-probability per word that its caption loses."""
        job = Job(pixel_rows(image_CYX, self._spec), [self._start], options=self._options(DEFAULT_BEAMS, 1))
        ((hypothesis,),) = self._service.scheduler().run(lambda: search_plan([job], self._service.model.sizes))
        target = np.array([self._start, *hypothesis.tokens.tolist(), self._end], np.int32)

        def mean_log_probs(images: list[np.ndarray]) -> np.ndarray:
            sources = [pixel_rows(variant_CYX, self._spec) for variant_CYX in images]
            log_probs_B = self._service.scheduler().run(lambda: score_plan(sources, [target] * len(sources)))
            return np.array([log_probs_T.mean() for log_probs_T in log_probs_B], np.float32)

        (reference,) = mean_log_probs([image_CYX])
        return lambda images: np.asarray(reference - mean_log_probs(images))

    def _caption(self, hypothesis: Hypothesis) -> Caption:
        words = [self._words[token] for token in hypothesis.tokens]
        assert hypothesis.attention_TS is not None  # ``_options`` asks for it
        maps_WYX = np.asarray(hypothesis.attention_TS, np.float32).reshape(len(words), *self._spec.grid)
        separator = "" if self._text.target_characters else " "
        return Caption(separator.join(words), words, hypothesis.score, maps_WYX)
