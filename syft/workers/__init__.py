"""Workers: a core that turns frames into frames, and the shells that carry the frames.

Importing the package fills the core's table of message handlers.
"""

from syft.workers.core import collective as collective
from syft.workers.core import commands as commands
from syft.workers.core import gradient_return as gradient_return
from syft.workers.core import objects as objects
from syft.workers.core import running as running
