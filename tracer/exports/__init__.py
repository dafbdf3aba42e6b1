"""A trace as files that other tools open: Chrome JSON, Perfetto, Chakra."""
