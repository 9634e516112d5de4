"""The gateway: ranking, and every door for clients."""
