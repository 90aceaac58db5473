"""Programs in the formats of others: torch.fx, torch.export, ONNX and TorchScript.

Every format is reached through the first: a linted program becomes a ``torch.fx.GraphModule``, and
torch makes the others of that.  Nothing here is imported until somebody exports, and what ONNX
needs besides torch is looked for only then.
"""
