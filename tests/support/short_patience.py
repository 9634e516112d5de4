"""The embedding process, whose metrics a client may ask for in half a second of silence instead of ten."""

from hippovault_chassis import metrics
from hippovault_embedding.__main__ import main

SILENT_SECONDS = 0.5

if __name__ == "__main__":
    vars(metrics)["_Handler"].timeout = SILENT_SECONDS
    main()
