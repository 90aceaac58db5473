"""Shared tensors at the workers that hold the shares, and at the one that deals to them.

A client sends one ``Start`` to each worker that takes part; all of them have the same ``execution``
and the same ``parties``.  Below, P stands for the names of the parties of a session, in order, and
D for its provider, which is none of them.  ``execution`` MUST rise from each Start to the next over
a connection (``new_execution``).

``OPEN_SESSION`` makes a session: a :class:`SharingSession` at each worker.
    to each of P and to D, ``parties = (*P, D)``, ``args = ()``, ``outs = (session,)``: the same id
    everywhere.  D draws a key for each of P and sends it to that one alone.

``SHARES`` runs a share program at the parties, ``DEAL`` deals for it.
    to D, ``DEAL``: ``parties = (*P, D)``, ``args = (session, counter, deals)``, ``outs = ()``;
    ``session`` is a reference, ``deals`` is ``deals_of(program)``.  It is left out if there are no
    deals; SHARES still names D.
    to each of P, ``SHARES``: ``parties = (*P, D)``, ``args = (session, counter, program, input, …)``
    with one input for each of the program: a reference to a share or a masked value of this
    session, or a fresh share ``(share,)``, ``(share, guard)``: an int64 tensor, or ``(seed,
    shape)``, ``(seed, shape, guard)``: 32 bytes from which the party draws it with
    :class:`~syft.crypto.mask_stream.MaskStream`.  ``guard`` is what ``guard_fields`` makes, and the
    same for all parties.
    ``outs``: one id for each of ``program.results`` that is stored at this party, in this order:
    REVEALs to other parties are left out.  A share is stored as :class:`Share`, a masked value as
    :class:`MaskedShare`, what was revealed as a plain tensor.
    ``counter`` is above all that the session has seen, the same in DEAL and SHARES.  Programs of a
    session run one after another, in the order of their Starts, so a program may name the
    results of one before it at once, and what is sent need not be waited for.

``SPLIT`` splits an int64 tensor that worker O holds, among the parties of a session.
    ``parties = (*P, O)``, or P if O is one of them; ``owner`` is the rank of O there.
    to each of P but O: ``args = (session, owner)``, ``outs = (share,)``.
    to O: ``args = (session, owner, tensor)``, ``outs = (share,)`` if it is one of P; else
    ``args = (None, owner, tensor)``, ``outs = ()``.  ``tensor`` is a reference, with the depth of
    the integers if the object is a chain.

Drop ids as those of tensors.  ``FETCH`` of a Share replies with its int64 tensor, if its guard
admits the user; of nothing else here.  ``DESCRIBE`` of a session has as card ``(parties, rank,
counter, cause or nil, bytes of dealt material that wait here)``.

When a program fails, the session ends at all of its workers: whoever failed replies with the error,
the others with RemoteFailure that names it, and later requests get SessionEnded.
"""
