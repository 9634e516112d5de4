"""`hippovault connect`: brings the memory into the configuration of an MCP client."""
