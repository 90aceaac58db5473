"""Protocols: what several parties do together, recorded once, cut into one program per role."""
