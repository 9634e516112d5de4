"""Measurements. Each writes a report that says machine, versions and dataset hash."""
