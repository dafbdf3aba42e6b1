"""Record, read, align, export and analyse what a training job does on the wire."""
