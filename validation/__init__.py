"""Hold predictions against real runs: the lab, scenarios, the demo, the doctor."""
