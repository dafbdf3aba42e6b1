"""vsketchdlc: where a Horovod job's step time goes over TCP, and how many auxiliary processes to run.

The parts, lowest first: ``tracer``, ``model``, ``fasthvd``, ``replay``, ``validation``. A part imports
only parts to its left; importing ``tracer`` or ``model`` never imports mxnet, horovod or native code.
"""

from .tracer.control import start_trace, stop_trace

__all__ = ["start_trace", "stop_trace"]
__version__ = "0.1.0"
