"""The rows of the table of coverage that cannot be reached, with what happens to each instead.

Every other row must be reached, and none of these may be: a reason that is no longer true shows
when programs go through the table (:mod:`tests.privacy.two_worlds.table_programs`).
"""

from __future__ import annotations

from syft.ops.table import BY_NAME, FLAGS, REVEALS


def why_never(row: tuple[str, str, bool]) -> str | None:
    """Why a row of the table cannot be reached; None if it must be.

    >>> why_never(("torch.narrow", "2", True)), why_never(("torch.narrow", "0", True))
    ('a private number would be an offset', None)
    """
    name, place, succeeded = row
    last = name.rpartition(".")[2]
    if last in NEVER:
        return NEVER[last]
    if not succeeded:
        return None
    if FLAGS[BY_NAME[name]] & REVEALS:
        return "it returns Python values, which is refused"
    return NEVER_SUCCEED.get((last, place)) or NEVER_SUCCEED.get((last, ""))


NEVER: dict[str, str] = {
    "triplet_margin_with_distance_loss": "torch's samples hand it a function, which cannot travel",
}
"""Operations that cannot be called, and why, by the last part of their names."""

_NO_RULE = "torch has no rule that tells without values what its results look like"
_OF_SCALARS = "torch reads scalars that come as a tensor, private or not, as numbers"

NEVER_SUCCEED: dict[tuple[str, str], str] = {
    ("narrow", "2"): "a private number would be an offset",
    ("tensor_split", "1"): "private numbers would be sizes",
    ("_foreach_norm", "1"): "a private number would be the order of a norm",
    ("_foreach_powsum", "1"): "a private number would be the exponent of a sum",
    ("_foreach_addcdiv", "3"): _OF_SCALARS,
    ("_foreach_addcdiv_", "3"): _OF_SCALARS,
    ("_foreach_addcmul", "3"): _OF_SCALARS,
    ("_foreach_addcmul_", "3"): _OF_SCALARS,
    ("gaussian_nll_loss", "2"): "it reads whether a variance is negative",
    ("segment_reduce", "lengths"): "the check of lengths reads the least, the greatest and sums",
    ("segment_reduce", "offsets"): "the check of offsets reads the least and the greatest",
    ("istft", "window"): "it reads whether windows overlap without a gap",
    ("geqrf", ""): _NO_RULE,
    ("to_sparse", ""): "its result is sparse, a layout without predictions",
    ("sampled_addmm", ""): "its first operand must be sparse, a layout without predictions",
}
"""Operations that are refused for a private operand in a place, or in any, and what happens."""
