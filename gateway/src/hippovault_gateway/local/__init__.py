"""A whole memory on one machine: its processes, and the stdio door to them."""
