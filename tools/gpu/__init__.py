"""The steps of tools/gpu_check.py, one module per question."""
