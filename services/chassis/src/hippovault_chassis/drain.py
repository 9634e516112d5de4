"""How long a process that was asked to stop may take. Imports nothing, since a supervisor needs it too."""

LAME_DUCK_SECONDS = 0.2
"""Between telling NOT_SERVING and refusing calls, so that balancers look elsewhere first."""
GRACE_SECONDS = 10.0
"""What running calls get to end."""
STOP_SECONDS = LAME_DUCK_SECONDS + GRACE_SECONDS + 5.0
"""From SIGTERM to SIGKILL: the drain, and what a process then closes."""
