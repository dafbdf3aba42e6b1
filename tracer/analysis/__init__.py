"""Questions to a Trace, one a file; `Trace` has them as methods."""
