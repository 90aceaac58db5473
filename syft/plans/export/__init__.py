"""Programs in other formats: torch.fx, torch.export, ONNX and TorchScript.

A checked program becomes a ``torch.fx.GraphModule``, and torch makes the other formats from that.
The packages that ONNX needs besides torch are imported only when a plan is exported to it.
"""
