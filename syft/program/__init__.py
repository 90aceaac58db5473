"""Computation as data: numbered ops, so that what runs elsewhere can be checked before it runs."""
