"""How much one request may ask of the gateway. Imports nothing, since commands need it too."""

MAX_LIMIT = 100
"""Hits of one recall."""
MAX_PAGE_SIZE = 100
"""Memories on one page of a list."""
MAX_SKIP = 1_000_000_000
"""Memories that a list may skip."""
MAX_OVERSAMPLE_FACTOR = 100
"""Candidates fetched for each wanted hit."""
MAX_VERSION = 2**31 - 1
"""Of a memory, that an update may expect."""
MIN_ANSWER_BYTES = 4_096
MAX_ANSWER_BYTES = 1_048_576
"""Of a tool's answer, as JSON: the least leaves room for one memory's names, the most for one whole memory and more."""
