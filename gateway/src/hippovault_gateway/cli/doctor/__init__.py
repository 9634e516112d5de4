"""`hippovault doctor`: what is wrong with a memory, and what to do."""
