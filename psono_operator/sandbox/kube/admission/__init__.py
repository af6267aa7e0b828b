"""What single kinds do to their objects: folding, defaults and checks, one kind per module."""
