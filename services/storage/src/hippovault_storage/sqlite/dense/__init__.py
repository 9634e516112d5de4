"""The code index of large namespaces: finds candidates among many vectors, which are then compared exactly."""
