"""`CUlaunchConfig` and `CUlaunchAttribute` of the CUDA driver, as ctypes has them.

References
----------
CUDA Driver API: `cuLaunchKernelEx`, `CUlaunchConfig`, `CUlaunchAttribute`, `CUfunction_attribute`.
"""

from __future__ import annotations

import ctypes

COOPERATIVE, CLUSTER, PROGRAMMATIC = 2, 4, 6
"""Attributes of a launch: all CTAs resident at once; extents of a cluster; programmatic stream serialization."""
MAX_DYNAMIC_SMEM, NON_PORTABLE_CLUSTER = 8, 14
"""Attributes of a function: limit of dynamic shared memory; permission of clusters of more than 8 CTAs."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute, with room for a value of 64 bytes.

    Examples
    --------
    >>> ctypes.sizeof(LaunchAttribute), LaunchAttribute.value.offset
    (72, 8)
    """

    _fields_ = (("identity", ctypes.c_int32), ("padding", ctypes.c_int32), ("value", ctypes.c_uint32 * 16))


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig.

    Examples
    --------
    >>> ctypes.sizeof(LaunchConfig), LaunchConfig.stream.offset, LaunchConfig.attributes.offset
    (56, 32, 40)
    """

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3),
        ("block", ctypes.c_uint32 * 3),
        ("smem_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("count", ctypes.c_uint32),
    )
