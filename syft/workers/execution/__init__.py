"""Running operations for a caller: under its modes, the guards of private values, and checks."""
