"""What the extension in C calls and reads: the classes, tables and questions of the Python code.

It takes the common operation of a pointer from the call to the result
(``docs/design/0028-native.md``).
"""

from __future__ import annotations

import torch

from syft.chain.wrapper import Wrapper, make_opaque, reroute_near
from syft.ids import new_id
from syft.c_extension import EXTENSION
from syft.ops.control import RECORDING
from syft.ops.returns import ONE_TENSOR
from syft.tensors.pointer import (
    OPERATIONS,
    QUESTIONS,
    READS_GRADIENT,
    PointerTensor,
    reroute_calls,
    taken_up,
)
from syft.torch_private import (
    any_autocast_enabled,
    dispatch_modes,
    function_modes,
    is_overriding,
    is_tracing,
    saved_tensor_hooks,
)
from syft.workers.client.caller_modes import mode_without_grad
from syft.workers.client.connection import STORED, Connection
from syft.workers.client.facts import GONE, Facts
from syft.workers.client.garbage import Garbage
from syft.workers.client.open_groups import OpenGroups
from syft.workers.client.requests import Requests
from syft.workers.core.charges import LOOK, SMALL, Charges
from syft.workers.core.graphs import Graphs
from syft.workers.core.peer import Peer
from syft.workers.core.stats import Stats
from syft.workers.core.store import TOMBSTONES, ObjectStore
from syft.workers.core.tag_index import TagIndex
from syft.workers.handlers.command_graphs import note_graph
from syft.workers.handlers.commands import INDEXING, MAKING, MAKING_SIZES, accept
from syft.workers.shells.virtual_transport import VirtualTransport

if EXTENSION is not None:
    EXTENSION.setup(
        numbers=OPERATIONS,
        functions=MAKING,
        sized=MAKING_SIZES,
        indexing=INDEXING,
        Wrapper=Wrapper,
        PointerTensor=PointerTensor,
        Connection=Connection,
        Requests=Requests,
        Garbage=Garbage,
        OpenGroups=OpenGroups,
        Facts=Facts,
        VirtualTransport=VirtualTransport,
        ObjectStore=ObjectStore,
        Charges=Charges,
        Graphs=Graphs,
        TagIndex=TagIndex,
        Peer=Peer,
        Stats=Stats,
        Tensor=torch.Tensor,
        Parameter=torch.nn.Parameter,
        make_wrapper=make_opaque,
        new_id=new_id,
        numel=torch.Tensor.numel,
        is_grad_enabled=torch.is_grad_enabled,
        mode_without_grad=mode_without_grad,
        get_default_dtype=torch.get_default_dtype,
        float32=torch.float32,
        any_autocast_enabled=any_autocast_enabled,
        is_tracing=is_tracing,
        function_modes=function_modes,
        dispatch_modes=dispatch_modes,
        saved_tensor_hooks=saved_tensor_hooks,
        is_inference_mode_enabled=torch.is_inference_mode_enabled,
        is_anomaly_enabled=torch.is_anomaly_enabled,
        is_overriding=is_overriding,
        accept=accept,
        note_graph=note_graph,
        take_up=taken_up,
        expected=ONE_TENSOR,
        stored=STORED,
        questions=QUESTIONS,
        of_gradient=QUESTIONS[READS_GRADIENT],
        recording=RECORDING,
        gone=GONE,
        look=LOOK,
        small=SMALL,
        tombstones=TOMBSTONES,
    )
    reroute_calls(EXTENSION.Route)
    reroute_near(EXTENSION.Route)
