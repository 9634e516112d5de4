"""Text to token ids, cut at the model's window."""

from __future__ import annotations

from dataclasses import dataclass

from tokenizers import Encoding, Tokenizer

from hippovault_embedding.model import Model, ModelError

CHARACTERS_A_TOKEN = 8
"""More than running text has, so that the first cut nearly always fills the window."""
SPECIAL_TOKENS = 2
"""One at each end."""
UNKNOWN = "[UNK]"
"""What stands for a word that the vocabulary cannot spell."""


@dataclass(frozen=True)
class Tokens:
    """A text as the model sees it."""

    ids: list[int]
    """Special tokens included."""
    truncated: bool
    unknown: int
    """How many of the ids are UNKNOWN."""

    @property
    def mostly_unknown(self) -> bool:
        """Whether the text's language is not the model's."""
        return 2 * self.unknown > len(self.ids) - SPECIAL_TOKENS


class ModelTokenizer:
    """A model's tokenizer, in memory.

    Args:
        model: Its file is verified first.

    Raises:
        ModelError: The file is damaged or not a tokenizer.
        OSError: The file cannot be read.
    """

    def __init__(self, model: Model) -> None:
        model.tokenizer.verify()
        self._window = model.window
        self._tokenizer = Tokenizer.from_file(str(model.tokenizer.path))
        # The file's own padding would have every text cost as much as a long one.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(model.window)
        # "[SEP]" in a memory is text, not a command to the model.
        self._tokenizer.encode_special_tokens = True
        unknown_id = self._tokenizer.token_to_id(UNKNOWN)
        if unknown_id is None:
            raise ModelError(f"{model.tokenizer.path} has no token {UNKNOWN}")
        self._unknown_id = unknown_id

    def tokenize(self, text: str) -> Tokens:
        """Returns the tokens of a text's beginning, as many as the window holds.

        The cost of tokenising grows with the text even where tokens are cut off, so characters are cut off first. What
        is kept is what the whole text would have given: while the cut may have touched a kept word, more is taken.
        """
        length = self._window * CHARACTERS_A_TOKEN
        encoding = self._tokenizer.encode(text[:length])
        while length < len(text) and not _ends_before_last_word(encoding):
            length *= 2
            encoding = self._tokenizer.encode(text[:length])
        ids = encoding.ids
        return Tokens(ids, truncated=bool(encoding.overflowing), unknown=ids.count(self._unknown_id))


def _ends_before_last_word(encoding: Encoding) -> bool:
    """Tells whether the kept tokens belong to other words than the last token that was cut off."""
    return bool(encoding.overflowing) and _last_word(encoding) != _last_word(encoding.overflowing[-1])


def _last_word(encoding: Encoding) -> int | None:
    return encoding.word_ids[-SPECIAL_TOKENS]
