"""Workers: a core that turns frames into frames, and the shells that carry the frames.

Importing the package fills the core's table of message handlers.
"""

from syft.workers import collective as collective
from syft.workers import commands as commands
from syft.workers import connection as connection
from syft.workers import contents as contents
from syft.workers import gradients as gradients
from syft.workers import objects as objects
from syft.workers import running as running
