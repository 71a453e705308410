"""A tokenizer of a few words for small transformers models."""

from pathlib import Path
from typing import Any

import transformers as tf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

WORDS = ["the", "plot", "was", "not", "what", "i", "call", "gripping", "a", "film", "to", "remember"]


def tokenizer() -> Any:
    """Return a tokenizer of ``WORDS`` that puts [CLS] before every text."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[CLS]", "[UNK]", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(single="[CLS] $A", special_tokens=[("[CLS]", 1)])
    return tf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]")


def save(model: Any, folder: Path) -> str:
    """Save the model with the tokenizer, and return its name for ``study`` and `analyze`."""
    tokenizer().save_pretrained(folder)
    model.save_pretrained(folder)
    return f"hf:{folder}"
