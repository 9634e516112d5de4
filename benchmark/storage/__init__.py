"""Speed and size of the storage service, against a hand-written program over the same tables."""
