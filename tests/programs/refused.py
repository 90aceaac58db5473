"""The programs that are refused: in which ways, by which error, and why.

A program that stands here and runs fails its test: this table may only shrink.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from syft.exceptions import (
    CannotRecord,
    DataStaysPut,
    DeviceMismatch,
    LocationMismatch,
    OperationError,
    OperationRefused,
    SyftError,
    UnknownOperation,
    UnsupportedOperation,
)

POINTERS: Final = ("virtual", "queued", "socket", "held", "device")
PLANS: Final = ("plan", "sent plan")


@dataclass(frozen=True)
class Refusal:
    """What a program is refused with."""

    ways: tuple[str, ...]
    error: type[SyftError]
    words: str
    """What the error says, as a regular expression."""
    reason: str


TABLE: Final[list[tuple[str, Refusal]]] = [
    (
        "loss_adaptive_softmax_not_sent",
        Refusal(POINTERS, LocationMismatch, "A parameter of shape", "its layers were not sent"),
    ),
    (
        "loss_adaptive_softmax_not_sent",
        Refusal(PLANS, CannotRecord, "a parameter that the function makes", "it draws new layers"),
    ),
    (
        "sample_beta sample_dirichlet own_function own_function_setup",
        Refusal(POINTERS, UnsupportedOperation, "autograd.Function", "its backward is Python"),
    ),
    (
        "sample_beta sample_dirichlet own_function own_function_setup",
        Refusal(PLANS, CannotRecord, "torch.autograd.Function", "its backward is Python"),
    ),
    (
        "backward_hook",
        Refusal(POINTERS, UnsupportedOperation, "retain_grad", "a hook is Python"),
    ),
    (
        "hook_on_a_tensor hook_that_looks after_accumulation",
        Refusal(POINTERS, OperationRefused, "a function cannot travel", "a hook is Python"),
    ),
    (
        "hook_on_a_tensor hook_that_looks",
        Refusal(PLANS, CannotRecord, "a function cannot travel", "a hook is Python"),
    ),
    (
        "func_functionalize",
        Refusal(POINTERS, OperationError, "below|cannot run", "it works below all subclasses"),
    ),
    (
        "func_functionalize",
        Refusal(PLANS, CannotRecord, "a torch.func transform", "it works below all subclasses"),
    ),
    (
        "numpy_array",
        Refusal(POINTERS, LocationMismatch, "lie at", "what a program has loaded stays here"),
    ),
    (
        "saved to_numpy",
        Refusal(POINTERS, DataStaysPut, "Bring it here first", "the data is not here"),
    ),
    (
        "numpy_array_0d",
        Refusal(PLANS, CannotRecord, "__array__", "numpy computes, and is not recorded"),
    ),
    (
        "scripted",
        Refusal(POINTERS, UnknownOperation, "a plan of the script", "its calls are C++"),
    ),
    (
        "optimizer_radam optimizer_asgd optimizer_adafactor",
        Refusal(PLANS, CannotRecord, "step outside of the plan", "it decides by values"),
    ),
    (
        "model_rotary model_tensors_in_lists model_noisy",
        Refusal(("device",), DeviceMismatch, "lie at", "it makes tensors without a device"),
    ),
]

REFUSED: Final = {
    (name, way): refusal
    for names, refusal in TABLE
    for name in names.split()
    for way in refusal.ways
}
