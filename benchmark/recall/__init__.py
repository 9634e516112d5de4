"""Recall on real data: memories go in and questions are asked through the gateway."""
