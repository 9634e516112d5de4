"""The embedding process, in which running calls get half a second to end instead of ten."""

from hippovault_chassis import serving
from hippovault_embedding.__main__ import main

GRACE_SECONDS = 0.5

if __name__ == "__main__":
    vars(serving)["GRACE_SECONDS"] = GRACE_SECONDS
    main()
