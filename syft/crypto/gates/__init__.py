"""Gates on shared integers, a deal and a protocol each: truncation, comparison, their parts.

They know tensors only (`docs/design/0021-shares.md`).
"""
