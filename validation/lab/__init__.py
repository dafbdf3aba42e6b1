"""Emulated hosts on one Linux machine: real MPI, real TCP, shaped links."""
