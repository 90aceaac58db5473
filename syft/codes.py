"""Every number on the wire, with its name; numbers are assigned only here.

Workers with different versions of syft must agree on what a number means, so these tables are
append-only: a number is never used for something else, a retired one stays as a comment, and a new
name takes the next free number.  Members are integers, so MessagePack writes them as such.
``docs/wire.md`` shows the same tables, and a test compares the two.

Names of torch objects (named tuples, enumerations) are tables here as well: a receiver looks up a
*number* and gets the name written here.  A name that arrives is never imported or looked up.
"""

from __future__ import annotations

import enum


class WireCode(enum.IntEnum):
    """A wire number that carries its own line of documentation as ``meaning``.

    >>> TypeCode.SLICE, TypeCode.SLICE.meaning
    (<TypeCode.SLICE: 7>, 'start, stop, step')
    """

    meaning: str

    def __new__(cls, value: int, meaning: str = "") -> "WireCode":
        """Make the member; ``meaning`` is the text after the number."""
        member = int.__new__(cls, value)
        member._value_ = value
        member.meaning = meaning
        return member


class TypeCode(WireCode):
    """What a nested tuple is: its first item. The meaning lists the fields that follow.

    0 and 1 are references, 2 to 63 belong to serde, 64 and above to the layers on top of it.

    >>> int(TypeCode.TENSOR)
    32
    """

    REF = 0, "id[, depth] — a tensor in the receiving worker's store"
    POINTER = 1, "id at its worker, that worker, whether it collects, depth"
    TUPLE = 2, "item, …"
    LIST = 3, "item, …"
    DICT = 4, "key, value, key, value, …"
    SET = 5, "item, …"
    FROZENSET = 6, "item, …"
    SLICE = 7, "start, stop, step"
    ELLIPSIS = 8, "no fields"
    RANGE = 9, "start, stop, step"
    COMPLEX = 10, "real, imag"
    BIG_INT = 11, "bytes: two's complement, little-endian — an integer beyond 64 bits"
    BYTEARRAY = 12, "bytes"
    SURROGATE_STR = 13, "bytes: UTF-8 with surrogates passed — a string that is not valid Unicode"
    ORDERED_DICT = 14, "key, value, key, value, …"
    NAMED_TUPLE = 15, "number in NAMED_TUPLES, item, …"
    NOT_IMPLEMENTED = 16, "no fields"
    PYTHON_TYPE = 17, "number in PYTHON_TYPES — int, float, … given as a dtype"
    SIZE = 18, "length, …"
    DTYPE = 19, "DTypeCode"
    DEVICE = 20, "DeviceCode, index or nil"
    LAYOUT = 21, "LayoutCode"
    MEMORY_FORMAT = 22, "MemoryFormatCode"
    QSCHEME = 23, "QSchemeCode"
    GENERATOR = 24, "DeviceCode, index or nil, seed"
    FINFO = 25, "DTypeCode"
    IINFO = 26, "DTypeCode"
    TORCH_ENUM = 27, "number in TORCH_ENUMS, value"
    PACKED_SEQUENCE = 28, "data, batch_sizes, sorted_indices, unsorted_indices"
    EXCEPTION = 29, "ErrorCode, [argument, …], traceback or nil, [note, …]"
    TENSOR = 32, "DTypeCode, shape, strides or nil, buffer or nil[, device, attributes]"
    QUANTIZED = 33, "DTypeCode, shape, strides or nil, buffer, scheme, device, attributes"
    SPARSE_COO = 34, "shape, indices, values, coalesced, attributes"
    SPARSE_COMPRESSED = 35, "LayoutCode, shape, compressed, plain, values, attributes"
    JAGGED = 36, "values, offsets, lengths or nil, attributes"
    TORCH_OPTIONS = 37, "number in TORCH_OPTIONS, field, …"
    BUNDLE = 38, "[position, …] or nil, [[flags, stacked tensor], …], [tensor, …] — many tensors"
    SLOT = 40, "index — a value of the program around it"
    PROGRAM = 41, "inputs, state, [constant, …], [action, …], outputs"
    GROUP = 42, "[kind of input, …], program — what a number in a connection's table stands for"
    PLAN_CALL = (
        43,
        "id of a plan[, kinds of its inputs[, outs]] — likewise; without kinds, its state",
    )
    PLAN = 44, "interface, program, [state, …], [tag, …], description, copy of — see Plans"
    WRAPPER = 64, "attributes, link — the head of a chain whose link is below autograd"
    LOGGING_TENSOR = 65, "the tensor behind it"
    MULTI_POINTER = 66, "pointer, …"
    FIXED_PRECISION = 67, "base, digits, the integers"
    PROMISE = 68, "reserved: an object that is not there yet"
    REFS = 69, "id, … — a list of tensors in the receiving worker's store"
    SHARE_PROGRAM = 70, "as PROGRAM, its actions of a ShareCode — see Shares"
    # 71 was an operand of a share program: it is a SLOT.
    ROLE = 72, "name, program, [source, …], [target, …], [state, …], [tag, …], description"


RESERVED: frozenset[TypeCode] = frozenset((TypeCode.PROMISE,))
"""Numbers that are not used yet; every other one has a codec."""


class DTypeCode(WireCode):
    """The dtypes of torch; the member's name in lower case is the name in torch.

    >>> DTypeCode.BFLOAT16.name.lower()
    'bfloat16'
    """

    FLOAT32 = 0
    FLOAT64 = 1
    FLOAT16 = 2
    BFLOAT16 = 3
    BOOL = 4
    UINT8 = 5
    INT8 = 6
    INT16 = 7
    INT32 = 8
    INT64 = 9
    UINT16 = 10
    UINT32 = 11
    UINT64 = 12
    COMPLEX32 = 13
    COMPLEX64 = 14
    COMPLEX128 = 15
    FLOAT8_E4M3FN = 16
    FLOAT8_E5M2 = 17
    FLOAT8_E4M3FNUZ = 18
    FLOAT8_E5M2FNUZ = 19
    FLOAT8_E8M0FNU = 20
    FLOAT4_E2M1FN_X2 = 21
    QINT8 = 22
    QUINT8 = 23
    QINT32 = 24
    QUINT4X2 = 25
    QUINT2X4 = 26
    BITS1X8 = 27
    BITS2X4 = 28
    BITS4X2 = 29
    BITS8 = 30
    BITS16 = 31
    UINT1 = 32
    UINT2 = 33
    UINT3 = 34
    UINT4 = 35
    UINT5 = 36
    UINT6 = 37
    UINT7 = 38
    INT1 = 39
    INT2 = 40
    INT3 = 41
    INT4 = 42
    INT5 = 43
    INT6 = 44
    INT7 = 45


class LayoutCode(WireCode):
    """The layouts of torch.

    >>> LayoutCode(2)
    <LayoutCode.SPARSE_CSR: 2>
    """

    STRIDED = 0
    SPARSE_COO = 1
    SPARSE_CSR = 2
    SPARSE_CSC = 3
    SPARSE_BSR = 4
    SPARSE_BSC = 5
    JAGGED = 6


class MemoryFormatCode(WireCode):
    """The memory formats of torch.

    >>> MemoryFormatCode.CHANNELS_LAST.value
    2
    """

    CONTIGUOUS_FORMAT = 0
    PRESERVE_FORMAT = 1
    CHANNELS_LAST = 2
    CHANNELS_LAST_3D = 3


class QSchemeCode(WireCode):
    """The quantization schemes of torch.

    >>> QSchemeCode.PER_TENSOR_AFFINE.value
    0
    """

    PER_TENSOR_AFFINE = 0
    PER_CHANNEL_AFFINE = 1
    PER_TENSOR_SYMMETRIC = 2
    PER_CHANNEL_SYMMETRIC = 3
    PER_CHANNEL_AFFINE_FLOAT_QPARAMS = 4


class DeviceCode(WireCode):
    """The device types of torch; the member's name in lower case is the name in torch.

    >>> DeviceCode["CUDA"].value
    1
    """

    CPU = 0
    CUDA = 1
    META = 2
    MPS = 3
    XPU = 4
    HPU = 5
    XLA = 6
    MTIA = 7
    IPU = 8
    MAIA = 9
    PRIVATEUSEONE = 10


class Compression(WireCode):
    """How the bytes of a tensor buffer are stored.

    >>> Compression.LZ4.meaning
    'one LZ4 frame'
    """

    NONE = 0, "as they are"
    LZ4 = 1, "one LZ4 frame"


class TensorFlag(enum.IntFlag):
    """What a tensor is besides its data; bits of the first attribute.

    >>> TensorFlag.REQUIRES_GRAD | TensorFlag.PARAMETER
    <TensorFlag.REQUIRES_GRAD|PARAMETER: 3>
    """

    REQUIRES_GRAD = 1
    PARAMETER = 2
    BUFFER = 4
    PERSISTENT = 8


class ErrorCode(WireCode):
    """The exception classes that cross the wire as themselves.

    0 to 99 Python's own, 100 to 119 torch's, 128 and above those of ``syft.exceptions``.

    >>> ErrorCode.INDEX_ERROR.value
    4
    """

    EXCEPTION = 0
    VALUE_ERROR = 1
    TYPE_ERROR = 2
    RUNTIME_ERROR = 3
    INDEX_ERROR = 4
    KEY_ERROR = 5
    ATTRIBUTE_ERROR = 6
    NOT_IMPLEMENTED_ERROR = 7
    ASSERTION_ERROR = 8
    ARITHMETIC_ERROR = 9
    ZERO_DIVISION_ERROR = 10
    OVERFLOW_ERROR = 11
    FLOATING_POINT_ERROR = 12
    LOOKUP_ERROR = 13
    MEMORY_ERROR = 14
    BUFFER_ERROR = 15
    EOF_ERROR = 16
    IMPORT_ERROR = 17
    MODULE_NOT_FOUND_ERROR = 18
    NAME_ERROR = 19
    UNBOUND_LOCAL_ERROR = 20
    REFERENCE_ERROR = 21
    RECURSION_ERROR = 22
    SYSTEM_ERROR = 23
    STOP_ITERATION = 24
    STOP_ASYNC_ITERATION = 25
    SYNTAX_ERROR = 26
    INDENTATION_ERROR = 27
    TAB_ERROR = 28
    UNICODE_ERROR = 29
    UNICODE_DECODE_ERROR = 30
    UNICODE_ENCODE_ERROR = 31
    UNICODE_TRANSLATE_ERROR = 32
    OS_ERROR = 33
    BLOCKING_IO_ERROR = 34
    CHILD_PROCESS_ERROR = 35
    CONNECTION_ERROR = 36
    BROKEN_PIPE_ERROR = 37
    CONNECTION_ABORTED_ERROR = 38
    CONNECTION_REFUSED_ERROR = 39
    CONNECTION_RESET_ERROR = 40
    FILE_EXISTS_ERROR = 41
    FILE_NOT_FOUND_ERROR = 42
    INTERRUPTED_ERROR = 43
    IS_A_DIRECTORY_ERROR = 44
    NOT_A_DIRECTORY_ERROR = 45
    PERMISSION_ERROR = 46
    PROCESS_LOOKUP_ERROR = 47
    TIMEOUT_ERROR = 48
    EXCEPTION_GROUP = 49
    WARNING = 50
    USER_WARNING = 51
    RUNTIME_WARNING = 52
    DEPRECATION_WARNING = 53
    PENDING_DEPRECATION_WARNING = 54
    FUTURE_WARNING = 55
    IMPORT_WARNING = 56
    SYNTAX_WARNING = 57
    UNICODE_WARNING = 58
    BYTES_WARNING = 59
    RESOURCE_WARNING = 60
    ENCODING_WARNING = 61
    OUT_OF_MEMORY_ERROR = 100
    LINALG_ERROR = 101
    ACCELERATOR_ERROR = 102
    SYFT_ERROR = 128
    WORKER_ERROR = 129
    UNKNOWN_WORKER = 130
    WORKER_ID_TAKEN = 131
    WORKER_CLOSED = 132
    REMOTE_FAILURE = 133
    STORE_ERROR = 134
    OBJECT_NOT_FOUND = 135
    OBJECT_ID_TAKEN = 136
    OBJECT_NOT_READY = 137
    OPERATION_ERROR = 138
    UNKNOWN_OPERATION = 139
    OPERATION_REFUSED = 140
    UNSUPPORTED_OPERATION = 141
    LOCATION_MISMATCH = 142
    DATA_STAYS_PUT = 143
    SEND_ERROR = 144
    NOT_SENDABLE = 145
    NOT_A_LEAF = 146
    NOTHING_TO_GET = 147
    WIRE_ERROR = 148
    MALFORMED_MESSAGE = 149
    LIMIT_EXCEEDED = 150
    PERMISSION_DENIED = 151
    ENCODING_ERROR = 152
    HOOK_ERROR = 153
    PROGRAM_ERROR = 154
    NOT_BUILT = 155
    CANNOT_RECORD = 156
    WRONG_ARGUMENTS = 157
    STATE_MISMATCH = 158
    PLANS_NOT_ALLOWED = 159
    RESULT_MISMATCH = 160
    PROMISE_GIVEN_UP = 161
    WORKER_LOST = 162
    WORKER_REFUSED = 163
    WORKER_TIMEOUT = 164
    WRONG_ADDRESS = 165
    INSECURE_ADDRESS = 166
    BROKEN_FRAMING = 167
    REQUEST_WITHDRAWN = 168
    TOKEN_MISSING = 169
    TRUST_ERROR = 176
    TICKET_REFUSED = 177
    FINGERPRINT_MISMATCH = 178
    UNKNOWN_TOKEN = 179
    FILE_REFUSED = 180
    UNUSABLE_SETTING = 181
    SHARING_ERROR = 182
    NOT_SHAREABLE = 183
    WRONG_PARTIES = 184
    SESSION_ENDED = 185
    MATERIAL_ERROR = 186
    MATERIAL_USED = 187
    STOCK_FULL = 188
    NOT_THERE = 189
    SHARED_OPERATION_FAILED = 190
    PROVIDER_LOST = 191
    OTHER_PATH = 192
    WRONG_RESULT = 193
    PROVIDER_DENIED = 194
    NO_SUCH_DEVICE = 195
    UNKNOWN_DEVICE = 196
    DEVICE_MISMATCH = 197
    STALE_OPERAND = 198
    PROTOCOL_ERROR = 199
    INPUT_REFUSED = 200
    EXECUTION_CANCELLED = 201
    AUDIT_FAILED = 202
    AUDIT_BROKEN = 203
    TOO_FEW_CLIENTS = 204


class LineCode(WireCode):
    """What two processes say to each other about their line: the tag of each class of record."""

    RECEIVED = 1, "how many messages have arrived"
    OPEN = 2, "open a channel"
    MEET = 3, "ask where a worker is"
    INTRODUCTION = 4, "where it is: answers MEET"
    TUNNEL = 5, "begin a tunnel"
    OPENED = 6, "the tunnel is there: answers TUNNEL"
    ROOM = 7, "more bytes may be sent through a tunnel"
    CLOSED = 8, "a tunnel is over"
    SETTLE = 9, "ask whether all that was asked is done"
    SETTLED = 10, "it is: answers SETTLE"
    BUSY = 11, "what requests wait for"
    WITHDRAW = 12, "do not begin what was asked"
    WITHDRAWN = 13, "how much is not begun: answers WITHDRAW"
    TELL = 14, "reserved: a question about the worker"
    TOLD = 15, "reserved: answers TELL"
    BYE = 16, "the other end leaves"


class MessageCode(WireCode):
    """The messages that workers exchange: the tag of each message class.

    The layer ``syft.workers`` defines one message class per number: requests from 1, replies from
    32.
    """

    COMMAND = 1, "run an operation of the op table"
    PUT = 2, "store a value"
    FETCH = 3, "hand an object over"
    DROP = 4, "forget objects whose last pointers are gone"
    MOVE = 5, "send an object on to another worker"
    DUPLICATE = 6, "store a copy of an object"
    SEARCH = 7, "list the objects that carry some tags"
    ANNOTATE = 8, "add tags and a description to an object"
    DESCRIBE = 9, "tell an object's tags, description and shape"
    # 10 is retired: it listed the ids of all objects, or removed them all
    PROMISE = 11, "announce objects that will come"
    START = 12, "start one worker's part of a collective operation"
    EXCHANGE = 13, "what one party of a collective sends another in one round"
    ABORT = 14, "a party of a collective operation failed"
    # 15 is retired: it asked for the gradients of a leaf that was put before, when they might have
    # come already
    RELAY = 16, "send an object on and keep a pointer, or the reverse"
    CONVERT = 17, "change how an object is represented"
    RUN = 18, "run a program or a plan, by its number in the connection's table"
    HOLDS = 19, "ask whether an object has this content"
    CANCEL = 20, "take back a request that waits for promised objects"
    PUT_ALL = 21, "store many tensors"
    FETCH_ALL = 22, "hand many objects over"
    GIVE_UP = 23, "give up a promise, with the reason"
    AWAIT = 24, "be told when a promise is kept or given up"
    GRADIENTS = 25, "store the gradients of leaves under ids of their own"
    CLEAR_GRADIENTS = 26, "take the gradients of leaves away"
    SHARE = 27, "let others change an object to which they have a pointer"
    ALLOW = 28, "store a copy of a private object that more users may read"
    DONE = 32, "success; a command made one tensor"
    VALUE = 33, "success with a value"
    FAILURE = 34, "the request raised"
    PARKED = 35, "the request waits for promised objects; its reply follows later"
    SKIPPED = 36, "the request was not made, because an earlier one failed"
    FORGOTTEN = 37, "the worker was cleared: no number of this connection stands for anything"
    STALE = 38, "somebody else may have changed shapes or gradients that this caller knows"
    CANCELLED = 39, "the request was not run, because nobody wants its results any more"
    NOT_BEGUN = 40, "the request was not run, because its caller withdrew it before its turn"


class ConversionCode(WireCode):
    """The conversions: changes of representation that are not torch functions."""

    FIX_PRECISION = 1, "encode in fixed precision"
    FLOAT_PRECISION = 2, "decode from fixed precision"


class CollectiveCode(WireCode):
    """The collective operations: one party program per number."""

    SUM = 1, "the sum of every party's private tensor"
    OPEN_SESSION = 2, "the provider deals a key to each of some parties"
    SHARES = 3, "a program on shared tensors, at one of the parties"
    DEAL = 4, "the same at the provider: what the parties need of it"
    SPLIT = 5, "a tensor at one worker becomes a shared one"
    DEAL_AHEAD = 6, "what the parties need of a program that comes later"
    ROLL_BACK = 7, "the parties undo what programs have written in place, and go on"
    ROLE = 8, "a role of a protocol"
    SUM_OF_THOSE_LEFT = 9, "the same sum, of the parties that stay, and who they are"


PYTHON_TYPES: tuple[type, ...] = (bool, int, float, complex)
"""Python types that torch takes as a dtype; the index is the wire number."""

TORCH_ENUMS: tuple[str, ...] = (
    "torch.nn.attention.SDPBackend",
    "torch.nn.functional.ScalingType",
    "torch.nn.functional.SwizzleType",
)
"""Enumerations that torch functions take; the index is the wire number."""

TORCH_OPTIONS: tuple[str, ...] = ("torch.nn.LinearCrossEntropyOptions",)
"""Dataclasses that torch functions take; the index is the wire number."""

_RETURN_TYPES = """
    aminmax aminmax_out cummax cummax_out cummin cummin_out frexp frexp_out geqrf geqrf_out
    histogram histogram_out histogramdd kthvalue kthvalue_out linalg_cholesky_ex
    linalg_cholesky_ex_out linalg_eig linalg_eig_out linalg_eigh linalg_eigh_out linalg_inv_ex
    linalg_inv_ex_out linalg_ldl_factor linalg_ldl_factor_ex linalg_ldl_factor_ex_out
    linalg_ldl_factor_out linalg_lstsq linalg_lstsq_out linalg_lu linalg_lu_factor
    linalg_lu_factor_ex linalg_lu_factor_ex_out linalg_lu_factor_out linalg_lu_out linalg_qr
    linalg_qr_out linalg_slogdet linalg_slogdet_out linalg_solve_ex linalg_solve_ex_out linalg_svd
    linalg_svd_out lu_unpack lu_unpack_out max max_out median median_out min min_out mode mode_out
    nanmedian nanmedian_out qr qr_out slogdet slogdet_out sort sort_out svd svd_out topk topk_out
    triangular_solve triangular_solve_out
    _fake_quantize_per_tensor_affine_cachemask_tensor_qparams _fused_moving_avg_obs_fq_helper
    _linalg_det _linalg_det_out _linalg_eigh _linalg_eigh_out _linalg_slogdet _linalg_slogdet_out
    _linalg_solve_ex _linalg_solve_ex_out _linalg_svd _linalg_svd_out _lu_with_info
    _scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu _unpack_dual
"""

NAMED_TUPLES: tuple[str, ...] = (
    *(f"torch.return_types.{name}" for name in _RETURN_TYPES.split()),
    "torch.nn.modules.adaptive._ASMoutput",
    "torch.nn.modules.module._IncompatibleKeys",
    "torch.autograd.forward_ad.UnpackedDualTensor",
    "torch.return_types.linalg_polar",  # from torch 2.14 on
    "torch.return_types.linalg_polar_out",
)
"""Named tuples that torch functions return; the index is the wire number. Append at the end."""
