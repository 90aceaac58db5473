"""The chain: the wrapper at its head, the links it is made of, and how it travels."""

from syft.chain import wrapper_codec as wrapper_codec
