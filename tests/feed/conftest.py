"""Devices for JAX, made up on the CPU: asked for before anything looks for them."""

from __future__ import annotations

import os

os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=6")
