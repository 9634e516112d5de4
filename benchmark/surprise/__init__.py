"""What the surprise boost gains where something was decided among much talk."""
