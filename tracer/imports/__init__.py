"""Other tools' trace files as a Trace: Horovod timeline, MXNet profiler, Kineto, Chakra."""
