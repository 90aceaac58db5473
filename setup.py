"""The extension in C, left out where there is no compiler; the rest is in pyproject.toml."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("syft._native", ["syft/_native.c"], optional=True)])
