"""What happens to a memory's values on their way to the file and back.

A sealed value is: the scheme, one byte; the id of the data key, 8 bytes; the nonce, 12 bytes; the AES-256-GCM
ciphertext with its tag of 16 bytes. What it belongs to is authenticated with it, so no value can stand in another's
place: namespace, category, key, column, version and id of the memory.
"""

from __future__ import annotations

import hmac
import os
from collections.abc import Mapping
from typing import Literal, NamedTuple

import grpc
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from hippovault_chassis.errors import ServiceError

Mode = Literal["off", "values", "file"]

SCHEME = b"\x01"
KEY_ID_BYTES = 8
NONCE_BYTES = 12
NONCE_AT = len(SCHEME) + KEY_ID_BYTES
CIPHERTEXT_AT = NONCE_AT + NONCE_BYTES
LENGTH_BYTES = 8

Value = str | bytes | None
"""What stands in a column: the text itself or a sealed value; None stays None, since it tells nothing."""


class Place(NamedTuple):
    """Which memory, in which version, a value belongs to."""

    namespace: str
    category: str
    key: str
    version: int
    memory_id: int


class Vault:
    """Leaves values as they are. They lie in a file of their own cipher where there is a key for it.

    Args:
        file_key: 32 bytes with which the whole file is encrypted; None when it is not.
    """

    seals = False
    """Whether values are encrypted one by one."""

    def __init__(self, file_key: bytes | None = None) -> None:
        self.file_key = file_key

    @property
    def encryption(self) -> str:
        """What is encrypted: "values", "file", or "" for nothing."""
        return "file" if self.file_key else ""

    def seal(self, place: Place, column: str, text: str | None) -> Value:  # noqa: ARG002
        """Returns what a column holds for a text."""
        return text

    def open(self, place: Place, column: str, value: Value, *, table: str = "memories") -> str:  # noqa: ARG002
        """Returns the text that a column holds; "" for None.

        Args:
            place: What the value must belong to.
            column: The column's name, the same in every table that has copies of it.
            value: What the column holds.
            table: The table, for the error.

        Raises:
            ServiceError: DATA_LOSS when the value is not one that this vault sealed for this place.
        """
        return value or ""  # type: ignore[return-value]  # An unsealed column holds text alone.

    def digest(self, text: str) -> str:
        """Returns what stands for a text where it is only ever looked up: for content hashes and tags."""
        return text


PLAIN = Vault()


class SealingVault(Vault):
    """Encrypts every value by itself.

    Args:
        keys: 32 bytes each, by their ids; the first is the one that seals. May be replaced while others read.
        digest_key: 32 bytes.
    """

    seals = True

    def __init__(self, keys: Mapping[bytes, bytes], digest_key: bytes) -> None:
        super().__init__()
        self._digest_key = digest_key
        self._keys: dict[bytes, AESGCM] = {}
        self.use(keys)

    @property
    def encryption(self) -> str:
        """What is encrypted."""
        return "values"

    @property
    def key_id(self) -> bytes:
        """Of the data key that seals."""
        return next(iter(self._keys))

    @property
    def header(self) -> bytes:
        """What values begin with that this vault seals now."""
        return SCHEME + self.key_id

    def is_current(self, value: Value) -> bool:
        """Tells whether a value is sealed with the key that seals now."""
        return isinstance(value, bytes) and value.startswith(self.header)

    def use(self, keys: Mapping[bytes, bytes]) -> None:
        """Takes keys, the first of which seals from now on.

        Those that it had go on to open values: of a reader who sees the store as it was before they were replaced.
        """
        self._keys = {key_id: AESGCM(key) for key_id, key in keys.items()} | {
            key_id: key for key_id, key in self._keys.items() if key_id not in keys
        }

    def seal(self, place: Place, column: str, text: str | None) -> Value:
        """Returns the sealed value."""
        if text is None:
            return None
        key_id, key = next(iter(self._keys.items()))
        header, nonce = SCHEME + key_id, os.urandom(NONCE_BYTES)
        return header + nonce + key.encrypt(nonce, text.encode(), header + _belonging(place, column))

    def open(self, place: Place, column: str, value: Value, *, table: str = "memories") -> str:
        """Returns the text of a sealed value."""
        if value is None:
            return ""
        if not isinstance(value, bytes) or not value.startswith(SCHEME):
            raise _damaged(place, column, table, "is not encrypted, though this store's values are")
        header = value[:NONCE_AT]
        key = self._keys.get(header[len(SCHEME) :])
        if key is None:
            raise _damaged(place, column, table, "is encrypted with a key that this store does not have")
        try:
            text = key.decrypt(value[NONCE_AT:CIPHERTEXT_AT], value[CIPHERTEXT_AT:], header + _belonging(place, column))
        except (InvalidTag, ValueError):
            raise _damaged(place, column, table, "was changed, or belongs to another memory or version") from None
        return text.decode()

    def digest(self, text: str) -> str:
        """Returns a keyed digest, lower-case hex of HMAC-SHA-256."""
        return hmac.digest(self._digest_key, text.encode(), "sha256").hex()


def framed(*parts: str) -> bytes:
    """Returns bytes that no other list of parts gives: each part with its length before it."""
    encoded = [part.encode() for part in parts]
    return b"".join(len(part).to_bytes(LENGTH_BYTES, "big") + part for part in encoded)


def _belonging(place: Place, column: str) -> bytes:
    return framed(place.namespace, place.category, place.key, column, str(place.version), str(place.memory_id))


def _damaged(place: Place, column: str, table: str, problem: str) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.DATA_LOSS,
        "VALUE_NOT_AUTHENTIC",
        f"the value in table {table}, column {column} of memory {place.memory_id} {problem}; "
        "restore it from a backup, or purge this memory",
    )
