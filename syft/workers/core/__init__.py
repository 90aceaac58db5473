"""The serving end: a state machine from frames to frames, which knows no transport."""
