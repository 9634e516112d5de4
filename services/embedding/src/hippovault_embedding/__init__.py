"""The embedding service: text to vectors."""
