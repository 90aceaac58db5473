"""Products of shared bits under public masks: comparisons take few rounds with them.

A product of several shared bits b_1 … b_k takes one round, not log k.  The provider deals masks
m_1 … m_k and all products of subsets of them; the parties open d_i = b_i + m_i, and b_1 … b_k =
(d_1 + m_1) … (d_k + m_k) is a public polynomial in d and linear in what was dealt (Ohata and Nuida,
FC 2020, on fan-in of more than two).  Sums are xor and products are "and", 64 elements a word.

Products of subsets are held in the order of binary numbers: entry S of 2^k belongs to the subset
of which bit i of S says whether factor i is in it.  Entry 0 is the public 1 and is left out where
it says "non-empty".
"""

from __future__ import annotations

from collections.abc import Sequence

from syft.crypto.gates.bit_planes import Words, module_of


def subset_products(factors: Sequence[Words], out: Words) -> None:
    """Write the products of all non-empty subsets of factors that are known.

    >>> import numpy as np
    >>> out = np.zeros((3, 1), dtype=np.int64)
    >>> subset_products([np.array([6]), np.array([3])], out)
    >>> out[:, 0].tolist()
    [6, 3, 2]
    """
    for number, factor in enumerate(factors):
        at = 1 << number
        out[at - 1] = factor
        module_of(out).bitwise_and(out[: at - 1], factor, out=out[at : 2 * at - 1])


def with_factor(rank: int, products: Words, masked: Words, opened: Words) -> Words:
    """Shares of S·b for all subsets S, where b is ``opened`` + m.

    ``products`` are shares of the non-empty S, ``masked`` those of S·m for all S.  Party 0 adds
    the public part.  ``opened`` has the shape of one product.
    """
    module = module_of(masked)
    found = module.empty_like(masked)
    rest = found[1:]
    module.bitwise_and(products, opened, out=rest)
    rest ^= masked[1:]
    if rank == 0:
        module.bitwise_xor(masked[0], opened, out=found[0])
    else:
        found[0] = masked[0]
    return found


def multiplied(shares: Words, opened: Words) -> Words:
    """Shares of S·f·b, where b is ``opened`` + m, from those of S·f for all subsets S.

    m is the last of the factors of which S are the subsets; half as many are left.
    """
    half = len(shares) // 2
    found = shares[:half] & opened
    found ^= shares[half:]
    return found
