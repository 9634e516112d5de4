"""Text to token ids, in windows of the model's size."""

from __future__ import annotations

from pathlib import Path

from tokenizers import Encoding, Tokenizer

from hippovault_embedding import windows
from hippovault_embedding.backend import Options, Piece, Prepared
from hippovault_embedding.model import Model, ModelError

CHARACTERS_A_TOKEN = 8
"""More than running text has, so that the first cut nearly always fills the windows."""
UNKNOWN = ("[UNK]", "<unk>")
"""What stands for a word that the vocabulary cannot spell; a vocabulary of bytes has none."""


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
        self._model = model
        self._tokenizer = _read(model.tokenizer.path)
        # The file's own padding would have every text cost as much as a long one.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # "[SEP]" in a memory is text, not a command to the model.
        self._tokenizer.encode_special_tokens = True
        self._unknown = {self._tokenizer.token_to_id(token) for token in UNKNOWN} - {None}
        self._front, self._back = self._special_tokens()
        self._check_space()

    def prepare(self, text: str, options: Options) -> Prepared:
        """Returns the tokens of a text's beginning, as many as its windows hold."""
        prefix = self._model.query_prefix if options.query else self._model.document_prefix
        space = self._model.window - len(self._front) - len(self._back)
        encoding = self._encode(prefix + text, len(prefix) + windows.reach(space, options.max_windows))
        leading = sum(end <= len(prefix.rstrip()) for _, end in encoding.offsets[: len(prefix)]) if prefix else 0
        ids, lead = encoding.ids[leading:], [*self._front, *encoding.ids[:leading]]
        capacity = space - leading
        kept = ids[: windows.reach(capacity, options.max_windows)]
        pieces, left = [], options.max_told_tokens
        for start, end in windows.spans(len(kept), capacity):
            piece = [*lead, *kept[start:end], *self._back]
            first = len(lead) + (windows.overlap(capacity) if start else 0)
            told = slice(first, min(len(piece) - len(self._back), first + left))
            left -= told.stop - told.start
            pieces.append(Piece(piece, len(piece), told=told, token_encoding=options.token_encoding))
        unknown = sum(token in self._unknown for token in kept)
        return Prepared(
            pieces,
            token_count=sum(piece.size for piece in pieces),
            truncated=len(kept) < len(ids),
            unknown=unknown,
            mostly_unknown=2 * unknown > len(kept),
        )

    def _encode(self, text: str, wanted: int) -> Encoding:
        """Returns the tokens of a text, or of so much of its beginning that the first `wanted` are what they would be.

        The cost of tokenising grows with the text even where tokens are not kept, so characters are cut off first.
        While the cut may have touched a wanted word, more is taken.
        """
        length = wanted * CHARACTERS_A_TOKEN
        encoding = self._tokens(text[:length], special=False)
        while length < len(text) and not _reaches_beyond(encoding, wanted):
            length *= 2
            encoding = self._tokens(text[:length], special=False)
        return encoding

    def _tokens(self, text: str, *, special: bool) -> Encoding:
        try:
            return self._tokenizer.encode(text, add_special_tokens=special)
        except BaseException as error:  # What its author calls a panic is no Exception: nobody else would catch it.
            raise ModelError(f"{self._model.tokenizer.path} cannot tokenise: {error}") from error

    def _check_space(self) -> None:
        """Refuses a window that special tokens and a prefix fill."""
        for prefix in (self._model.query_prefix, self._model.document_prefix):
            taken = len(self._tokens(prefix, special=True).ids)
            if taken >= self._model.window:
                raise ModelError(
                    f"{self._model.tokenizer.path}: special tokens and the prefix {prefix!r} are {taken} tokens, "
                    f"which leaves no room for text in a window of {self._model.window}"
                )

    def _special_tokens(self) -> tuple[list[int], list[int]]:
        """Returns what the model wants before a text and after it."""
        encoding = self._tokens("a", special=True)
        ordinary = [place for place, special in enumerate(encoding.special_tokens_mask) if not special]
        if not ordinary:
            raise ModelError(f"{self._model.tokenizer.path} has no token for the letter a")
        return encoding.ids[: ordinary[0]], encoding.ids[ordinary[-1] + 1 :]


def _read(path: Path) -> Tokenizer:
    try:
        return Tokenizer.from_file(str(path))
    except BaseException as error:  # The library raises nothing more specific, and panics, which are no Exceptions.
        raise ModelError(f"{path} is not a tokenizer: {error}") from error


def _reaches_beyond(encoding: Encoding, wanted: int) -> bool:
    """Tells whether the wanted tokens belong to other words than the last one, which the cut may have touched."""
    words = encoding.word_ids
    return len(words) > wanted and words[wanted - 1] != words[-1]
