"""Who may connect to a worker, and how a caller knows which worker it is.

Tokens, tickets, lock-outs and certificates, as mathematics and files: nothing here opens a socket,
and no worker is known here.  Clocks are arguments (``now``), so that a test needs no sleep.
"""
