"""The embedding service: text to vectors."""

import os

# ONNX Runtime reports its use to its maker, and keeps a database for that in the user's cache directory, unless this
# says no before it is imported; its own function to switch that off comes too late.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
