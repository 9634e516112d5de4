"""How long a recall takes at each door, and where that time goes."""
