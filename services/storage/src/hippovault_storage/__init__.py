"""The storage service: memories kept and found again."""
