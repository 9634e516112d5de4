"""The forms in which token codes are kept. Imports nothing of the services, since commands need it too."""

from __future__ import annotations

from typing import Literal

TokenEncoding = Literal["int8", "int4", "sign", "off"]
DEFAULT_ENCODING: TokenEncoding = "sign"
"""48 bytes a token with the default model, where int4 has 192 and int8 384. nDCG@10 of hybrid recall with sign, int4
and int8: .546, .548, .549 (conversations), .759, .758, .759 (banking), .924, .924, .923 (FAQ)."""
