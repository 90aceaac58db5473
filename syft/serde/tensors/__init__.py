"""The codecs of tensors: a descriptor in the header, and raw bytes beside it."""
