"""For all tests: no deadline on generated examples, this code may run on a busy machine."""

from hypothesis import settings

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")
