"""For all tests: no deadline on generated examples, this code may run on a busy machine."""

from hypothesis import settings

settings.register_profile("any-machine", deadline=None)
settings.load_profile("any-machine")

# Programs that tests start in an engine's own environment: here their imports are not to be had.
collect_ignore = ["engines/model_folder.py", "engines/old_llama_server.py", "cases/record_answers.py"]
