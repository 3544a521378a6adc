"""What holds for all tests."""

from hypothesis import settings

# Shared machines stand still for seconds: how long one example takes says nothing.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
