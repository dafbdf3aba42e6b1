"""From raw logs to a Trace: names, steps, buckets, clocks."""
