"""Share programs: what parties compute as lists of instructions, checked, dealt for and run.

They know no worker and no message (`docs/design/0021-shares.md`).
"""
