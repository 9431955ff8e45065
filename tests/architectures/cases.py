"""All cases: an architecture each three times and more, then heads."""

from tests.architectures.absolute import ALBERT, BERT, CAMEMBERT, DISTILBERT, ELECTRA, ROBERTA, XLM_ROBERTA
from tests.architectures.biased import DEBERTA, JINA, MPNET, T5
from tests.architectures.case import Case
from tests.architectures.heads import HEADS
from tests.architectures.rotary import GEMMA3, GTE, MODERNBERT, NEW, NOMIC, NOMIC_GPT2_NAMES, QWEN2, QWEN3

CASES: list[Case] = [
    *BERT, *ROBERTA, *XLM_ROBERTA, *CAMEMBERT, *MPNET, *DISTILBERT, *ELECTRA, *ALBERT, *MODERNBERT, *NOMIC,
    *NOMIC_GPT2_NAMES, *NEW, *GTE, *JINA, *QWEN3, *QWEN2, *GEMMA3, *T5, *DEBERTA, *HEADS,
]  # fmt: skip
GOLDEN_CASES = [case for case in CASES if case.golden]
