"""The Model Context Protocol: the tools, and the doors through which they are called."""
