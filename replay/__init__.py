"""Play a recorded run again, in the simulator or on the wire."""
