"""The keys of one store, as they lie beside its database: wrapped by a key that lies elsewhere.

Data keys encrypt; the digest key makes content hashes and tags comparable without telling them. Their file says which
key wraps them, what they encrypt and which store they are of, and a canary over all of that proves that a key is the
right one before anything is opened or written.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import grpc

from hippovault_chassis.errors import ServiceError
from hippovault_storage import keys
from hippovault_storage.keys import WrappingKey
from hippovault_storage.vault import PLAIN, Mode, SealingVault, Vault, framed

FORMAT = 1
CANARY = b"hippovault"
MODES = ("values", "file")
SECRETS = 3
"""Of a store: canary, digest key, and at least one data key."""


@dataclass(frozen=True)
class Keyring:
    """The keys of a store.

    Args:
        mode: What they encrypt; "off" for a store without keys.
        store: Names the store, in hex; its database has the same name in it.
        data_keys: 32 bytes each. The first is in use; further ones are those that a rotation has not replaced yet.
        digest_key: 32 bytes; the same for as long as the store is encrypted.
    """

    mode: Mode
    store: str = ""
    data_keys: tuple[bytes, ...] = field(default=(), repr=False)
    digest_key: bytes = field(default=b"", repr=False)

    @classmethod
    def new(cls, mode: Mode) -> Self:
        """Returns fresh keys."""
        if mode == "off":
            return cls(mode)
        return cls(mode, os.urandom(keys.ID_BYTES).hex(), (_random(),), _random())

    @property
    def label(self) -> str:
        """What the database has in it: mode and store; empty for a store without keys."""
        return "" if self.mode == "off" else f"{self.mode} {self.store}"

    def rotated(self) -> Self:
        """Returns these keys with a new data key before the others."""
        return replace(self, data_keys=(_random(), *self.data_keys))

    def renewed(self) -> Self:
        """Returns these keys with a new data key alone."""
        return self.rotated().settled()

    def settled(self) -> Self:
        """Returns these keys without the data keys that are no longer in use."""
        return replace(self, data_keys=self.data_keys[:1])

    def vault(self) -> Vault:
        """Returns what the store's values go through."""
        if self.mode == "file":
            return Vault(keys.derived(self.data_keys[0], "file"))
        if self.mode == "values":
            return SealingVault(self.sealing_keys(), keys.derived(self.digest_key, "digest"))
        return PLAIN

    def sealing_keys(self) -> dict[bytes, bytes]:
        """Returns the keys of single values by the ids that the values carry."""
        return {keys.key_id(key): keys.derived(key, "values") for key in self.data_keys}

    def wrapped(self, wrapping: WrappingKey) -> bytes:
        """Returns the contents of the file of keys."""
        document = {
            "format": FORMAT,
            "mode": self.mode,
            "store": self.store,
            "wrapped_by": wrapping.id,
            "canary": _text(wrapping.wrap(CANARY, self._belonging("canary", len(self.data_keys)))),
            "data_keys": [
                _text(wrapping.wrap(key, self._belonging("data", n))) for n, key in enumerate(self.data_keys)
            ],
            "digest_key": _text(wrapping.wrap(self.digest_key, self._belonging("digest"))),
        }
        return json.dumps(document, indent=1).encode() + b"\n"

    @classmethod
    def unwrapped(cls, document: Mapping[str, Any], wrapping: Sequence[WrappingKey], path: Path) -> Self:
        """Returns the keys of a document.

        Args:
            document: What `read` returned.
            wrapping: The keys that may have wrapped them.
            path: The file, for errors.

        Raises:
            ServiceError: FAILED_PRECONDITION WRONG_KEY when none of them has; DATA_LOSS when the file was changed.
        """
        key = next((key for key in wrapping if key.id == document["wrapped_by"]), None)
        if key is None:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "WRONG_KEY",
                f"{path} needs the key {document['wrapped_by']}; set is {' and '.join(key.id for key in wrapping)} "
                "(ids, which tell nothing of the keys)",
            )
        named = cls(document["mode"], document["store"])
        secrets = [
            key.unwrap(_bytes(document["canary"]), named._belonging("canary", len(document["data_keys"]))),
            key.unwrap(_bytes(document["digest_key"]), named._belonging("digest")),
            *(key.unwrap(_bytes(text), named._belonging("data", n)) for n, text in enumerate(document["data_keys"])),
        ]
        if secrets[0] != CANARY or None in secrets or len(secrets) < SECRETS:
            raise _damaged(path)
        digest_key, *data_keys = (secret or b"" for secret in secrets[1:])
        return replace(named, data_keys=tuple(data_keys), digest_key=digest_key)

    def _belonging(self, kind: str, number: int = 0) -> bytes:
        return framed(str(FORMAT), self.mode, self.store, kind, str(number))


def read(path: Path) -> dict[str, Any] | None:
    """Returns the document in a file of keys; None when there is no file.

    Raises:
        ServiceError: It is none, or of a newer format.
    """
    try:
        document = json.loads(path.read_bytes())
        if document["format"] > FORMAT:
            raise ServiceError(
                grpc.StatusCode.FAILED_PRECONDITION,
                "NEWER_KEYS",
                f"{path} has format {document['format']}, this program knows up to {FORMAT}; use a newer program",
            )
        if document["mode"] not in MODES:
            raise _damaged(path)
        for name in ("mode", "store", "wrapped_by", "canary", "digest_key"):
            if not isinstance(document[name], str):
                raise _damaged(path)
        for text in (document["canary"], document["digest_key"], *document["data_keys"]):
            _bytes(text)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _damaged(path) from None
    return dict(document)


def _random() -> bytes:
    return os.urandom(keys.KEY_BYTES)


def _text(secret: bytes) -> str:
    return base64.b64encode(secret).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _damaged(path: Path) -> ServiceError:
    return ServiceError(
        grpc.StatusCode.DATA_LOSS, "KEYS_DAMAGED", f"{path} is damaged; put its copy from a backup in its place"
    )
