"""The cases of ``benchmarks/tracer.py``, a file each."""
