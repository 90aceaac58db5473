"""Workers: a core that turns frames into frames, and the shells that carry the frames.

Importing the package fills the core's table of message handlers (:mod:`syft.workers.handlers`).
"""

from syft.workers.handlers import allowing as allowing
from syft.workers.handlers import collective as collective
from syft.workers.handlers import commands as commands
from syft.workers.handlers import gradient_return as gradient_return
from syft.workers.handlers import leaf_gradients as leaf_gradients
from syft.workers.handlers import objects as objects
from syft.workers.handlers import objects_in_bulk as objects_in_bulk
from syft.workers.handlers import private_sums as private_sums
from syft.workers.handlers import running as running
from syft.workers.handlers import role_runs as role_runs
from syft.workers.handlers import share_runs as share_runs
from syft.workers.handlers import sharing as sharing
from syft.workers.wire import share_programs as share_programs
