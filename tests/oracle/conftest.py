"""The script that runs in the other environment is not a test module of this one."""

collect_ignore = ["ask_vllm.py"]
