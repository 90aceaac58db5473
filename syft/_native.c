/* The common operation on pointers, in C: operands, message, the worker's route, reply, pointer.

   The Python code is the source: syft/tensors/pointer.py (`PointerTensor.call`),
   workers/client/operations.py (`make`), workers/core/state_machine.py (`respond`) and
   workers/handlers/commands.py (`handle`, `_make`).  This file does what they do for one request: an
   operation that makes one small tensor of pointers and plain numbers, at a worker that answers
   within the call, where nothing is private, promised, shared, limited, observed or recorded.  It also
   reads what is known here already (`Operations.gradient` and `fact`), of which no message is made.
   For anything else `call` returns NotImplemented before it has changed anything, and `serve` leaves the
   message to `respond`.  So no error is made here: what fails is run by Python, which says why.

   The message is written as bytes and read from bytes, as the Python code would (docs/wire.md), and
   what is read is checked: the two halves share nothing but these bytes and the objects of setup().

   Rules of the code.  What is borrowed is not used after a call that may run Python; objects whose
   slots are read are of exactly the class that has these slots.  One interpreter, under its lock. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <structmember.h>
#include <stdint.h>
#include <string.h>

enum { REQUEST = 0x01, REPLY = 0x20, REF = 0, GRAD_MODE = 1, ONE_RESULT = 8 }; /* see setup() */
enum { MOST_OPERANDS = 8, MOST_DROPPED = 8, MOST_BYTES = 256 };
/* 2 + 9 + 9 + 1 + 8 * 11 + 9 + 9 + 1 + 8 * 9 + 3 = 203 bytes at most, and a reply has 11 */

/* ------------------------------------------------------------------- what setup() is told */

#define KNOWN(X)                                                                                   \
    X(numbers) X(functions) X(sized) X(indexing) X(Wrapper) X(PointerTensor) X(Connection)         \
    X(Requests) X(Garbage) X(OpenGroups) X(Facts) X(VirtualTransport) X(ObjectStore) X(Charges)    \
    X(Graphs) X(note_graph)                                                                        \
    X(TagIndex) X(Peer) X(Stats) X(Tensor) X(Parameter) X(make_wrapper) X(new_id) X(numel)         \
    X(is_grad_enabled) X(mode_without_grad) X(get_default_dtype) X(float32)                        \
    X(any_autocast_enabled) X(is_tracing) X(function_modes) X(dispatch_modes)                      \
    X(saved_tensor_hooks) X(is_inference_mode_enabled) X(is_anomaly_enabled) X(is_overriding)      \
    X(accept) X(take_up) X(expected) X(stored) X(gone) X(look) X(questions) X(of_gradient)         \
    X(recording)
#define DECLARE(name) static PyObject *name;
KNOWN(DECLARE)

/* Classes with slots, which are read at their place in the object. */
#define SLOTS(X)                                                                                   \
    X(PointerTensor, connection) X(PointerTensor, id_at_location) X(PointerTensor, depth)          \
    X(PointerTensor, garbage_collect_data) X(Connection, transport) X(Connection, lock)            \
    X(Connection, groups) X(Connection, facts) X(Connection, garbage) X(Connection, requests)      \
    X(Connection, core) X(Connection, owner) X(Requests, user) X(Requests, seq)                    \
    X(OpenGroups, open) X(Garbage, ids) X(Garbage, owners)                                         \
    X(Facts, active) X(Facts, noted) X(Facts, _sent) X(Facts, _keys) X(Facts, _numbers)            \
    X(Facts, _known) X(Facts, _backward_passes)                                                    \
    X(ObjectStore, objects) X(ObjectStore, promised) X(ObjectStore, origins)                       \
    X(ObjectStore, charges) X(ObjectStore, tags) X(ObjectStore, _charged) X(ObjectStore, _gone)      \
    X(Charges, flags) X(Charges, guarded) X(Charges, graphs)                  \
    X(Graphs, left) X(Graphs, records) X(Graphs, ends) X(TagIndex, watched) X(TagIndex, noted) X(Peer, who)     \
    X(Peer, reads) X(Peer, dropped) X(Stats, messages_in) X(Stats, bytes_in) X(Stats, bytes_out)
#define PLACE(kind, name) static Py_ssize_t kind##_##name;
SLOTS(PLACE)
#define SLOT(object, kind, name) (*(PyObject **)((char *)(object) + kind##_##name))

#define NAMES(X)                                                                                   \
    X(child) X(user) X(_worker) X(_core) X(_peer) X(_observers) X(closed) X(pipelined) X(serving) X(_latest)    \
    X(contested) X(confined) X(dataflow) X(tasks) X(store) X(stats) X(to_return) X(outbox)         \
    X(acquire) X(release) X(append) X(_forget_oldest) X(drop_all) X(object)                       \
    X(replies) X(gradient_known) X(requires_grad)
#define NAME(name) static PyObject *s_##name;
NAMES(NAME)

static PyObject *zero;
static long long most_elements, most_tombstones;
static int ready, in_use;

/* ------------------------------------------------------------------------------- small steps */

static int is(PyObject *object, PyObject *kind) { return object && (PyObject *)Py_TYPE(object) == kind; }

/* Whether it is a list, a dict or a set with nothing in it. */
static int is_empty(PyObject *value) {
    if (!value) return 0;
    if (PyList_Check(value)) return !PyList_GET_SIZE(value);
    if (PyDict_Check(value)) return !PyDict_GET_SIZE(value);
    return PyAnySet_Check(value) && !PySet_GET_SIZE(value);
}

static int is_id(PyObject *value) {
    int overflow;
    return value && PyLong_CheckExact(value) && PyLong_AsLongLongAndOverflow(value, &overflow) >= 0 && !overflow;
}

/* Whether object.name is the value it has nearly always, or empty for NULL; -1 with an error set. */
static int has(PyObject *object, PyObject *name, PyObject *usual) {
    PyObject *value = PyObject_GetAttr(object, name);
    int good = !value ? -1 : usual ? value == usual : is_empty(value);
    Py_XDECREF(value);
    return good;
}

/* Whether a question to torch has its usual answer: the value, or if that is NULL anything false. */
static int answers(PyObject *question, PyObject *argument, PyObject *usual) {
    PyObject *value = PyObject_Vectorcall(question, &argument, argument != NULL, NULL);
    if (!value) return -1;
    int truth = usual ? value != usual : PyObject_IsTrue(value);
    Py_DECREF(value);
    return truth < 0 ? -1 : !truth;
}

static void clear(PyObject **objects, int count) {
    while (count--) Py_CLEAR(objects[count]);
}

static PyObject *tuple_of(PyObject **objects, int count) {
    PyObject *tuple = PyTuple_New(count);
    for (int k = 0; tuple && k < count; k++) PyTuple_SET_ITEM(tuple, k, Py_NewRef(objects[k]));
    return tuple;
}

static unsigned char *put_uint(unsigned char *to, uint64_t value) {
    if (value < 128) { *to++ = (unsigned char)value; return to; }
    int size = value < 0x100 ? 1 : value < 0x10000 ? 2 : value < 0x100000000 ? 4 : 8;
    *to++ = size == 1 ? 0xcc : size == 2 ? 0xcd : size == 4 ? 0xce : 0xcf;
    while (size--) *to++ = (unsigned char)(value >> (8 * size));
    return to;
}

static unsigned char *put_int(unsigned char *to, int64_t value) {
    if (value >= 0) return put_uint(to, (uint64_t)value);
    if (value >= -32) { *to++ = (unsigned char)value; return to; }
    int size = value >= -0x80 ? 1 : value >= -0x8000 ? 2 : value >= -0x80000000LL ? 4 : 8;
    *to++ = size == 1 ? 0xd0 : size == 2 ? 0xd1 : size == 4 ? 0xd2 : 0xd3;
    while (size--) *to++ = (unsigned char)((uint64_t)value >> (8 * size));
    return to;
}

static unsigned char *put_float(unsigned char *to, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *to++ = 0xcb;
    for (int size = 8; size--;) *to++ = (unsigned char)(bits >> (8 * size));
    return to;
}

/* The next big-endian bytes; NULL where there are not so many. */
static const unsigned char *get_bytes(const unsigned char *from, const unsigned char *end, int size,
                                      uint64_t *value) {
    if (end - from < size) return NULL;
    for (*value = 0; size--;) *value = *value << 8 | *from++;
    return from;
}

static const unsigned char *get_uint(const unsigned char *from, const unsigned char *end, uint64_t *value) {
    if (!from || from >= end) return NULL;
    unsigned char head = *from++;
    if (head < 128) { *value = head; return from; }
    return head < 0xcc || head > 0xcf ? NULL : get_bytes(from, end, 1 << (head - 0xcc), value);
}

/* A number as an operand: a new reference, or NULL (with no error set) where it is none. */
static const unsigned char *get_number(const unsigned char *from, const unsigned char *end, PyObject **number) {
    uint64_t bits;
    unsigned char head = *from;
    if (head == 0xc2 || head == 0xc3) { *number = PyBool_FromLong(head & 1); return from + 1; }
    if (head >= 0xe0) { *number = PyLong_FromLong((signed char)head); return from + 1; }
    if (head == 0xcb) {
        double value;
        if (!(from = get_bytes(from + 1, end, 8, &bits))) return NULL;
        memcpy(&value, &bits, sizeof value);
        *number = PyFloat_FromDouble(value);
        return from;
    }
    if (head >= 0xd0 && head <= 0xd3) {
        int size = 1 << (head - 0xd0);
        if (!(from = get_bytes(from + 1, end, size, &bits))) return NULL;
        *number = PyLong_FromLongLong((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
        return from;
    }
    if ((from = get_uint(from, end, &bits))) *number = PyLong_FromUnsignedLongLong(bits);
    return from;
}

/* ------------------------------------------------------------------------ the worker's half */

typedef struct {
    uint64_t seq, op, out, flags;
    PyObject *operands[MOST_OPERANDS]; /* ids of objects, or numbers */
    char is_id[MOST_OPERANDS];
    PyObject *dropped[MOST_DROPPED];
    int count, drops;
} Command;

/* Read a command of the common form; 0 if it is another message, -1 with an error set. */
static int read_command(const unsigned char *from, Py_ssize_t size, Command *command) {
    const unsigned char *end = from + size;
    uint64_t id;
    if (size < 10 || from[0] != 0x9a || from[1] != REQUEST) return 0;
    from = get_uint(get_uint(from + 2, end, &command->seq), end, &command->op);
    if (!from || from >= end || (*from & 0xf0) != 0x90 || (*from & 15) > MOST_OPERANDS) return 0;
    for (int left = *from++ & 15; left; left--) {
        int k = command->count;
        if (from >= end) return 0;
        command->operands[k] = NULL;
        if ((command->is_id[k] = *from == 0x92)) {
            if (end - from < 3 || from[1] != REF || !(from = get_uint(from + 2, end, &id))) return 0;
            command->operands[k] = PyLong_FromUnsignedLongLong(id);
        } else if (!(from = get_number(from, end, &command->operands[k])))
            return 0;
        if (!command->operands[k]) return PyErr_Occurred() ? -1 : 0;
        command->count++;
    }
    from = get_uint(get_uint(from, end, &command->out), end, &command->flags);
    if (!from || from >= end || (*from & 0xf0) != 0x90 || (*from & 15) > MOST_DROPPED) return 0;
    for (int left = *from++ & 15; left; left--) {
        if (!(from = get_uint(from, end, &id))) return 0;
        if (!(command->dropped[command->drops] = PyLong_FromUnsignedLongLong(id))) return -1;
        command->drops++;
    }
    return end - from == 3 && from[0] == 0xc0 && from[1] == 0xc0 && from[2] == 0xc0;
}

/* What a request to a worker works on: strong references, and the sizes to look at. */
typedef struct {
    PyObject *core, *peer, *store, *objects, *charges, *graphs, *stats, *reason;
    int look;
} Place;

/* Find the parts of a worker; 0 if one is not of the class that it usually is, -1 with an error set. */
static int find_parts(Place *place) {
    place->store = PyObject_GetAttr(place->core, s_store);
    place->stats = place->store ? PyObject_GetAttr(place->core, s_stats) : NULL;
    if (!place->stats) return -1;
    if (!is(place->peer, Peer) || !is(place->store, ObjectStore) || !is(place->stats, Stats)) return 0;
    place->objects = Py_XNewRef(SLOT(place->store, ObjectStore, objects));
    place->charges = Py_XNewRef(SLOT(place->store, ObjectStore, charges));
    place->reason = Py_XNewRef(SLOT(place->peer, Peer, dropped));
    if (!is(place->charges, Charges)) return 0;
    place->graphs = Py_XNewRef(SLOT(place->charges, Charges, graphs));
    return is(place->objects, (PyObject *)&PyDict_Type) && is(place->graphs, Graphs) && place->reason
        && is(SLOT(place->store, ObjectStore, tags), TagIndex);
}

/* Whether a worker is in the usual state, serving that one (or None), and its caller the last one. */
static int is_usual(Place *place, PyObject *serving) {
    PyObject *flags = SLOT(place->charges, Charges, flags);
    place->look = flags == look;
    if ((flags != zero && flags != look) || SLOT(place->charges, Charges, guarded) != Py_False) return 0;
    if (!is_empty(SLOT(place->store, ObjectStore, promised))) return 0;
    if (SLOT(SLOT(place->store, ObjectStore, tags), TagIndex, watched) != Py_False) return 0;
    if (SLOT(place->peer, Peer, reads) != Py_None) return 0;
    int good = has(place->core, s_serving, serving);
    if (good > 0) good = has(place->core, s__latest, SLOT(place->peer, Peer, who));
    if (good > 0) good = has(place->core, s_contested, Py_False);
    if (good > 0) good = has(place->core, s_confined, Py_False);
    if (good > 0) good = has(place->core, s_to_return, NULL);
    if (good > 0) good = has(place->core, s_outbox, NULL);
    if (good <= 0) return good;
    PyObject *dataflow = PyObject_GetAttr(place->core, s_dataflow);
    good = dataflow ? has(dataflow, s_tasks, NULL) : -1;
    Py_XDECREF(dataflow);
    return good;
}

/* Whether torch would call nobody else about a tensor on this thread, as `respond` asks. */
static int is_unobserved(void) {
    int good = answers(function_modes, NULL, NULL);
    if (good > 0) good = answers(dispatch_modes, NULL, NULL);
    if (good > 0) good = answers(saved_tensor_hooks, Py_True, Py_None);
    if (good > 0) good = answers(is_inference_mode_enabled, NULL, Py_False);
    if (good > 0) good = answers(is_anomaly_enabled, NULL, Py_False);
    return good;
}

/* Drop objects whose last pointers are gone, as `ObjectStore.drop_all`, which does the rest if more
   than the table of objects knows of them; -1 with an error set. */
static int drop(Place *place, Command *command) {
    PyObject *store = place->store, *tags = SLOT(store, ObjectStore, tags), *gone, *done;
    if (!is_empty(SLOT(store, ObjectStore, _charged)) || !is_empty(SLOT(store, ObjectStore, origins))
        || !is_empty(SLOT(tags, TagIndex, noted)) || !is_empty(SLOT(place->graphs, Graphs, records))
        || !is_empty(SLOT(place->graphs, Graphs, ends))) {
        PyObject *ids = tuple_of(command->dropped, command->drops);
        done = ids ? PyObject_CallMethodObjArgs(store, s_drop_all, ids, place->reason, NULL) : NULL;
        Py_XDECREF(ids);
        Py_XDECREF(done);
        return done ? 1 : -1;
    }
    for (int k = 0; k < command->drops; k++) {
        PyObject *value = Py_XNewRef(PyDict_GetItemWithError(place->objects, command->dropped[k]));
        if (!value && PyErr_Occurred()) return -1;
        if (!value) continue;
        int failed = PyDict_DelItem(place->objects, command->dropped[k]);
        Py_DECREF(value); /* dies after it is out of the table, and may drop others */
        gone = Py_XNewRef(SLOT(store, ObjectStore, _gone));
        failed = failed || !gone || PyDict_SetItem(gone, command->dropped[k], place->reason);
        Py_XDECREF(gone);
        if (failed) return -1;
    }
    gone = SLOT(store, ObjectStore, _gone);
    if (gone && PyDict_Check(gone) && PyDict_GET_SIZE(gone) > most_tombstones) {
        if (!(done = PyObject_CallMethodNoArgs(store, s__forget_oldest))) return -1;
        Py_DECREF(done);
    }
    return 1;
}

/* The function of a command, and whether sizes are to be looked at before it runs; a new reference. */
static PyObject *function_of(Place *place, Command *command) {
    PyObject *op = PyLong_FromUnsignedLongLong(command->op), *function = NULL;
    if (!op) return NULL;
    if (!(function = PyDict_GetItemWithError(functions, op)) && !PyErr_Occurred()) {
        function = PyDict_GetItemWithError(sized, op);
        int picks = command->count == 2 && !command->is_id[1] && PyLong_CheckExact(command->operands[1])
            ? PySet_Contains(indexing, op) : 0;
        if (picks < 0) function = NULL;
        if (!picks) place->look = 1;
    }
    Py_XINCREF(function);
    Py_DECREF(op);
    return function;
}

/* Charge the caller for what the graph of a result keeps, if it has one, as `_make`; -1 with an error set. */
static int note_kept(Place *place, Command *command, PyObject *function, PyObject **values, PyObject *result,
                     int small) {
    PyObject *given, *operands, *one, *left, *answer;
    int graph = is(result, Tensor) ? has(result, s_requires_grad, Py_True) : 1;
    if (graph <= 0) return graph;
    left = SLOT(place->graphs, Graphs, left);
    long long more = left ? PyLong_AsLongLong(left) : 0;
    if (small && more > 0 && is_empty(SLOT(place->graphs, Graphs, records))) {
        if (!(left = PyLong_FromLongLong(more - 1))) return -1;
        Py_SETREF(SLOT(place->graphs, Graphs, left), left);
        return 0;
    }
    if (PyErr_Occurred() || !(given = PyList_New(command->count))) return -1;
    for (int k = 0; k < command->count; k++) PyList_SET_ITEM(given, k, Py_NewRef(values[k]));
    if (!(operands = PyList_New(command->count))) { Py_DECREF(given); return -1; }
    for (int k = 0; k < command->count; k++) {
        one = command->is_id[k] ? Py_BuildValue("[iO]", REF, command->operands[k]) : Py_NewRef(values[k]);
        if (!one) { Py_DECREF(given); Py_DECREF(operands); return -1; }
        PyList_SET_ITEM(operands, k, one);
    }
    answer = PyObject_CallFunction(note_graph, "O(KO(NO)N{})KO", place->store, command->op, function, operands,
                                   Py_None, given, command->out, result);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

/* Compute, and charge the caller as `_make_looking` and `accept`; NULL with or without an error. */
static PyObject *compute(Place *place, Command *command, PyObject *function) {
    PyObject *values[MOST_OPERANDS + 1] = {0}, *result = NULL, *answer, *list = NULL;
    int k = 0, large;
    for (; k < command->count; k++) {
        PyObject *operand = command->operands[k];
        if (command->is_id[k]) {
            operand = PyDict_GetItemWithError(place->objects, operand);
            if (!is(operand, Tensor) && !is(operand, Parameter)) goto end;
        }
        values[k] = Py_NewRef(operand);
    }
    if (place->look) {
        if (!(list = PyList_New(k))) goto end;
        for (int i = 0; i < k; i++) PyList_SET_ITEM(list, i, Py_NewRef(values[i]));
        answer = PyObject_CallMethod(place->charges, "check_known", "KOO{}", command->op, function, list);
        if (!answer) goto end;
        Py_DECREF(answer);
    }
    if (!(result = PyObject_Vectorcall(function, values, k, NULL))) goto end;
    if (!(large = place->look || !is(result, Tensor))) {
        if (!(answer = PyObject_Vectorcall(numel, &result, 1, NULL))) { Py_CLEAR(result); goto end; }
        large = PyLong_AsLongLong(answer) > most_elements;
        Py_DECREF(answer);
    }
    if (large) {
        answer = PyObject_CallFunction(accept, "OKKKO", place->store, command->op, command->flags,
                                       command->out, result);
        if (!answer) Py_CLEAR(result);
        Py_XDECREF(answer);
    }
    if (result && note_kept(place, command, function, values, result, !large)) Py_CLEAR(result);
end:
    while (k--) Py_DECREF(values[k]);
    Py_XDECREF(list);
    return result;
}

/* Run a command and store its result, as `_make`; 0 if Python has to run it. */
static int run(Place *place, Command *command, int grad) {
    if (command->flags != (uint64_t)(grad ? ONE_RESULT | GRAD_MODE : ONE_RESULT)) return 0;
    if (!command->out || command->out >> 63) return 0;
    PyObject *function = function_of(place, command), *result = NULL;
    PyObject *out = function ? PyLong_FromUnsignedLongLong(command->out) : NULL;
    int taken = out ? PyDict_Contains(place->objects, out) : 0;
    if (out && !taken) result = compute(place, command, function);
    int done = result ? !PyDict_SetItem(place->objects, out, result) : 0;
    Py_XDECREF(result);
    Py_XDECREF(out);
    Py_XDECREF(function);
    return PyErr_Occurred() ? -1 : done;
}

/* Count one request and its reply, as `respond`. */
static int count(PyObject *stats, Py_ssize_t came, Py_ssize_t sent) {
    PyObject **counters[] = {&SLOT(stats, Stats, messages_in), &SLOT(stats, Stats, bytes_in),
                             &SLOT(stats, Stats, bytes_out)};
    long long more[] = {1, came, sent};
    for (int k = 0; k < 3; k++) {
        PyObject *sum = PyLong_FromLongLong(PyLong_AsLongLong(*counters[k]) + more[k]);
        if (!sum) return -1;
        Py_SETREF(*counters[k], sum);
    }
    return 1;
}

/* Handle a request; 1 with the reply, 0 if `respond` has to, -1 with an interrupt.  `grad` says whether
   autograd records on this thread.  What fails leaves nothing behind but dropped objects: `respond`
   runs it once more, and says what is wrong. */
static int serve(const unsigned char *request, Py_ssize_t size, PyObject *core, PyObject *peer, int grad,
                 unsigned char *reply, Py_ssize_t *replied) {
    Command command = {0};
    Place place = {.core = core, .peer = peer};
    int done = is_unobserved();
    if (done > 0) done = read_command(request, size, &command);
    if (done > 0) done = find_parts(&place);
    if (done > 0) done = is_usual(&place, Py_None);
    if (done > 0 && !PyObject_SetAttr(core, s_serving, peer)) {
        PyObject *kind, *value, *trace;
        if (command.drops) done = drop(&place, &command);
        if (done > 0 && command.drops) done = is_usual(&place, peer); /* objects have died meanwhile */
        if (done > 0) done = run(&place, &command, grad);
        PyErr_Fetch(&kind, &value, &trace);
        if (PyObject_SetAttr(core, s_serving, Py_None)) done = -1;
        else PyErr_Restore(kind, value, trace);
    } else if (done > 0)
        done = -1;
    if (done > 0) {
        reply[0] = 0x92;
        reply[1] = REPLY;
        *replied = put_uint(reply + 2, command.seq) - reply;
        done = count(place.stats, size, *replied);
    }
    if (done < 0 && PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear();
        done = 0;
    }
    clear(command.operands, command.count);
    clear(command.dropped, command.drops);
    PyObject *held[] = {place.store, place.objects, place.charges, place.graphs, place.stats, place.reason};
    clear(held, 6);
    return done;
}

/* ------------------------------------------------------------------------ the caller's half */

typedef struct { /* strong references all */
    PyObject *connection, *lock, *facts, *garbage, *requests, *transport, *core, *peer, *number, *out, *seq;
    PyObject *operands[MOST_OPERANDS]; /* ids of objects, or numbers */
    char is_id[MOST_OPERANDS];
    PyObject *dropped[MOST_DROPPED];
    int count, drops, grad;
} Site;

static void leave(Site *site) {
    PyObject *held[] = {site->connection, site->lock, site->facts, site->garbage, site->requests,
                        site->transport, site->core, site->peer, site->number, site->out, site->seq};
    clear(held, sizeof held / sizeof *held);
    clear(site->operands, site->count);
    clear(site->dropped, site->drops);
}

/* Take the arguments of a call as operands, and find the connection; 0 if one is not of the common
   kinds, -1 with an error set. */
static int read_arguments(PyObject *const *args, Py_ssize_t count, Site *site) {
    int overflow = 0;
    for (Py_ssize_t k = 0; k < count; k++) {
        PyObject *value = args[k];
        if ((site->is_id[k] = is(value, Wrapper))) {
            PyObject *link = PyObject_GetAttr(value, s_child), *connection;
            if (!link) return -1;
            Py_DECREF(link); /* the wrapper keeps it, and nothing below runs Python */
            if (!is(link, PointerTensor) || SLOT(link, PointerTensor, depth) != zero) return 0;
            connection = SLOT(link, PointerTensor, connection);
            if (!is(connection, Connection)) return 0;
            if (site->connection && site->connection != connection) return 0;
            if (!site->connection) site->connection = Py_NewRef(connection);
            value = SLOT(link, PointerTensor, id_at_location);
            if (!is_id(value)) return 0;
        } else if (PyLong_CheckExact(value))
            (void)PyLong_AsLongLongAndOverflow(value, &overflow);
        else if (!PyFloat_CheckExact(value) && !PyBool_Check(value))
            return 0;
        if (overflow) return 0;
        site->operands[site->count++] = Py_NewRef(value);
    }
    return site->connection != NULL;
}

/* Whether a connection leads to an open worker that answers within the call, for the user of before. */
static int is_near(PyObject *connection) {
    PyObject *transport = SLOT(connection, Connection, transport), *worker;
    PyObject *requests = SLOT(connection, Connection, requests);
    if (!is(transport, VirtualTransport) || !is(requests, Requests)) return 0;
    Py_INCREF(transport);
    int good = has(SLOT(connection, Connection, owner), s_user, SLOT(requests, Requests, user));
    if (good > 0) good = has(SLOT(connection, Connection, core), s_serving, Py_None);
    if (good > 0) {
        worker = PyObject_GetAttr(transport, s__worker);
        good = worker ? has(worker, s_closed, Py_False) : -1;
        if (good > 0) good = has(worker, s_pipelined, Py_False);
        Py_XDECREF(worker);
    }
    Py_DECREF(transport);
    return good;
}

/* Whether a connection and its worker, which must be immediate, are in the usual state. */
static int is_ready(Site *site) {
    PyObject *connection = site->connection, *value;
    PyObject *groups = SLOT(connection, Connection, groups), *ids = SLOT(connection, Connection, garbage);
    if (!is(groups, OpenGroups) || !is_empty(SLOT(groups, OpenGroups, open))) return 0;
    if (!is(ids, Garbage) || !is_empty(SLOT(ids, Garbage, owners))) return 0;
    PyObject *garbage = site->garbage = Py_XNewRef(SLOT(ids, Garbage, ids));
    if (!garbage || !PyList_CheckExact(garbage) || PyList_GET_SIZE(garbage) > MOST_DROPPED) return 0;
    for (Py_ssize_t k = 0; k < PyList_GET_SIZE(garbage); k++)
        if (!is_id(PyList_GET_ITEM(garbage, k))) return 0;
    if (!is(SLOT(connection, Connection, facts), Facts)) return 0;
    site->facts = Py_NewRef(SLOT(connection, Connection, facts));
    int good = is_near(connection);
    if (good <= 0) return good;
    site->transport = Py_XNewRef(SLOT(connection, Connection, transport));
    site->requests = Py_XNewRef(SLOT(connection, Connection, requests));
    if (!site->transport || !site->requests) return 0;
    if ((good = has(site->transport, s__observers, NULL)) <= 0) return good;
    if (!(site->core = PyObject_GetAttr(site->transport, s__core))) return -1;
    if (!(site->peer = PyObject_GetAttr(site->transport, s__peer))) return -1;
    if ((good = answers(is_tracing, NULL, Py_False)) <= 0) return good;
    if ((good = answers(get_default_dtype, NULL, float32)) <= 0) return good;
    if ((good = answers(any_autocast_enabled, NULL, Py_False)) <= 0) return good;
    if ((site->grad = answers(is_grad_enabled, NULL, Py_True)) < 0) return -1;
    if (!site->grad) { /* which raises in a function of autograd, as it must */
        if (!(value = PyObject_CallNoArgs(mode_without_grad))) return -1;
        good = value == zero;
        Py_DECREF(value);
    }
    return good;
}

/* Call a method of a deque, or of a lock, with one argument or none; -1 with an error set. */
static int tell(PyObject *object, PyObject *method, PyObject *argument) {
    PyObject *args[] = {object, argument};
    PyObject *answer = PyObject_VectorcallMethod(method, args, argument ? 2 : 1, NULL);
    Py_XDECREF(answer);
    return answer ? 0 : -1;
}

/* Take a key out of a dictionary, if it is there. */
static int discard(PyObject *dict, PyObject *key) {
    if (!dict) return 0;
    int there = PyDict_Contains(dict, key);
    return there > 0 ? PyDict_DelItem(dict, key) : there;
}

/* Have the facts note what the operation makes, as `Operations.make`: a tuple for Facts.noted. */
static int note(Site *site) {
    PyObject *operands = PyList_New(0), *noted = NULL, *entry = NULL;
    int failed = !operands;
    for (int k = 0; k < site->count && !failed; k++) {
        PyObject *operand = site->is_id[k] ? PyTuple_Pack(2, zero, site->operands[k])
                                           : Py_NewRef(site->operands[k]);
        failed = !operand || PyList_Append(operands, operand);
        Py_XDECREF(operand);
    }
    if (!failed) entry = PyTuple_Pack(6, site->number, operands, Py_None, site->out, expected, Py_None);
    noted = Py_XNewRef(SLOT(site->facts, Facts, noted));
    failed = !entry || !noted || tell(noted, s_append, entry);
    Py_XDECREF(noted);
    Py_XDECREF(entry);
    Py_XDECREF(operands);
    return failed ? -1 : 0;
}

/* Take the ids of pointers that died, as `Garbage.take`; `active` says that the facts note it. */
static int take_garbage(Site *site, int active) {
    PyObject *garbage = site->garbage, *noted, *key, *ids, *entry;
    Py_ssize_t left;
    int failed = 0;
    while (site->drops < MOST_DROPPED && (left = PyList_GET_SIZE(garbage)) && !failed) {
        site->dropped[site->drops++] = Py_NewRef(PyList_GET_ITEM(garbage, left - 1));
        failed = PyList_SetSlice(garbage, left - 1, left, NULL);
    }
    if (failed || !site->drops || !active) return failed;
    noted = Py_XNewRef(SLOT(site->facts, Facts, noted));
    if (noted && PyObject_Size(noted) > 0) {
        ids = tuple_of(site->dropped, site->drops);
        entry = ids ? PyTuple_Pack(6, gone, ids, Py_None, zero, Py_None, Py_None) : NULL;
        failed = !entry || tell(noted, s_append, entry);
        Py_XDECREF(entry);
        Py_XDECREF(ids);
    }
    Py_XDECREF(noted);
    for (int k = 0; k < site->drops && !failed; k++) {
        key = PyTuple_Pack(2, s_object, site->dropped[k]);
        failed = !key || discard(SLOT(site->facts, Facts, _sent), site->dropped[k])
            || discard(SLOT(site->facts, Facts, _keys), site->dropped[k])
            || discard(SLOT(site->facts, Facts, _numbers), key);
        Py_XDECREF(key);
    }
    return failed ? -1 : 0;
}

/* Write the message of a call. */
static Py_ssize_t write_command(Site *site, unsigned char *bytes) {
    unsigned char *to = bytes;
    *to++ = 0x9a;
    *to++ = REQUEST;
    to = put_uint(to, PyLong_AsUnsignedLongLong(site->seq));
    to = put_uint(to, PyLong_AsUnsignedLongLong(site->number));
    *to++ = 0x90 | (unsigned char)site->count;
    for (int k = 0; k < site->count; k++) {
        PyObject *operand = site->operands[k];
        if (site->is_id[k]) {
            *to++ = 0x92;
            *to++ = REF;
            to = put_int(to, PyLong_AsLongLong(operand));
        } else if (PyFloat_CheckExact(operand))
            to = put_float(to, PyFloat_AS_DOUBLE(operand));
        else if (PyBool_Check(operand))
            *to++ = operand == Py_True ? 0xc3 : 0xc2;
        else
            to = put_int(to, PyLong_AsLongLong(operand));
    }
    to = put_uint(to, PyLong_AsUnsignedLongLong(site->out));
    to = put_uint(to, site->grad ? ONE_RESULT | GRAD_MODE : ONE_RESULT);
    *to++ = 0x90 | (unsigned char)site->drops;
    for (int k = 0; k < site->drops; k++) to = put_uint(to, PyLong_AsUnsignedLongLong(site->dropped[k]));
    *to++ = 0xc0, *to++ = 0xc0, *to++ = 0xc0;
    return to - bytes;
}

/* Whether a reply says that the request of this number is done. */
static int is_done(const unsigned char *reply, Py_ssize_t size, PyObject *seq) {
    uint64_t number;
    const unsigned char *end = reply + size;
    if (size < 3 || reply[0] != 0x92 || reply[1] != REPLY) return 0;
    return get_uint(reply + 2, end, &number) == end && number == PyLong_AsUnsignedLongLong(seq);
}

/* A wrapped pointer to the result. */
static PyObject *new_pointer(Site *site) {
    PyObject *wrapper = PyObject_CallNoArgs(make_wrapper);
    PyObject *link = wrapper ? PyType_GenericAlloc((PyTypeObject *)PointerTensor, 0) : NULL;
    if (!link) { Py_XDECREF(wrapper); return NULL; }
    SLOT(link, PointerTensor, connection) = Py_NewRef(site->connection);
    SLOT(link, PointerTensor, id_at_location) = Py_NewRef(site->out);
    SLOT(link, PointerTensor, garbage_collect_data) = Py_NewRef(Py_True);
    SLOT(link, PointerTensor, depth) = Py_NewRef(zero);
    if (PyObject_SetAttr(wrapper, s_child, link)) Py_CLEAR(wrapper);
    Py_DECREF(link);
    return wrapper;
}

/* Make the request; under the lock.  NotImplemented if nothing was done, NULL with an error set; `stored`
   says that the result is there, and anything else is what the call returns. */
static PyObject *request(Site *site) {
    unsigned char bytes[MOST_BYTES], reply[16];
    Py_ssize_t size, replied = 0;
    int good = is_ready(site);
    if (good < 0) return NULL;
    if (!good) return Py_NewRef(Py_NotImplemented);
    int active = SLOT(site->facts, Facts, active) == Py_True;
    if (!(site->out = PyObject_CallNoArgs(new_id))) return NULL;
    if (active && note(site)) return NULL;
    site->seq = PyLong_FromLongLong(PyLong_AsLongLong(SLOT(site->requests, Requests, seq)) + 1);
    if (!site->seq) return NULL;
    Py_SETREF(SLOT(site->requests, Requests, seq), Py_NewRef(site->seq));
    if (take_garbage(site, active)) return NULL;
    size = write_command(site, bytes);
    if (PyErr_Occurred()) return NULL; /* an id or a number that is none */
    int done = serve(bytes, size, site->core, site->peer, site->grad, reply, &replied);
    if (done < 0) return NULL;
    if (done && is_done(reply, replied, site->seq)) return Py_NewRef(stored);
    PyObject *ids = tuple_of(site->dropped, site->drops);
    PyObject *answer = ids ? PyObject_CallFunction(take_up, "OOy#OO", site->connection, site->seq, bytes,
                                                   size, ids, site->out) : NULL;
    Py_XDECREF(ids);
    return answer;
}

/* --------------------------------------------------------------------- what is known here already */

/* Whether what was known of the objects at the other end is so still: nobody has said otherwise. */
static int is_current(PyObject *connection) {
    PyObject *plan = NULL, *replies;
    if (PyContextVar_Get(recording, NULL, &plan)) return -1;
    Py_XDECREF(plan);
    if (plan && plan != Py_None) return 0;
    int good = is_near(connection);
    if (good <= 0) return good;
    if (!(replies = PyObject_GetAttr(SLOT(connection, Connection, transport), s_replies))) return -1;
    Py_ssize_t unread = PyObject_Size(replies);
    Py_DECREF(replies);
    return unread < 0 ? -1 : !unread;
}

/* The gradient of a leaf if it is known, as `Facts.gradient`: a new reference, or NULL. */
static PyObject *known_gradient(PyObject *link, PyObject *connection, PyObject *facts) {
    PyObject *garbage = SLOT(connection, Connection, garbage), *id = SLOT(link, PointerTensor, id_at_location);
    PyObject *owners = is(garbage, Garbage) ? SLOT(garbage, Garbage, owners) : NULL;
    PyObject *gradient = NULL, *its, *passes = SLOT(facts, Facts, _backward_passes);
    if (SLOT(link, PointerTensor, garbage_collect_data) != Py_True || !id || !passes) return NULL;
    if (!owners || !PyDict_Check(owners) || PyDict_Contains(owners, id)) return NULL; /* as `own_leaf` */
    PyObject *known = PyObject_GetAttr(link, s_gradient_known);
    if (known && PyTuple_CheckExact(known) && PyTuple_GET_SIZE(known) == 2
        && PyObject_RichCompareBool(PyTuple_GET_ITEM(known, 0), passes, Py_EQ) > 0)
        gradient = Py_NewRef(PyTuple_GET_ITEM(known, 1));
    Py_XDECREF(known);
    if (!gradient || gradient == Py_None) return gradient;
    its = is(gradient, Wrapper) ? PyObject_GetAttr(gradient, s_child) : NULL;
    if (!is(its, PointerTensor) || SLOT(its, PointerTensor, garbage_collect_data) != Py_True)
        Py_CLEAR(gradient); /* it was fetched, or went elsewhere */
    Py_XDECREF(its);
    return gradient;
}

/* The answer to a question about the kind of an object if it is known, as `Facts.known`. */
static PyObject *known_fact(PyObject *number, PyObject *link, PyObject *facts) {
    PyObject *keys = SLOT(facts, Facts, _keys), *known = SLOT(facts, Facts, _known), *answer = NULL;
    PyObject *id = SLOT(link, PointerTensor, id_at_location), *key, *question;
    if (!id || !keys || !known || !PyDict_Check(keys) || !PyDict_Check(known)) return NULL;
    if (!(key = PyDict_GetItemWithError(keys, id)) || !(question = PyTuple_Pack(2, number, key))) return NULL;
    answer = Py_XNewRef(PyDict_GetItemWithError(known, question));
    Py_DECREF(question);
    return answer;
}

/* What a question about a pointer is answered with if that is known here; NotImplemented if not. */
static PyObject *answer_known(PyObject *operation, PyObject *tensor) {
    PyObject *number = PyDict_GetItemWithError(questions, operation), *answer = NULL;
    PyObject *link = number ? PyObject_GetAttr(tensor, s_child) : NULL, *connection, *facts;
    if (is(link, PointerTensor) && SLOT(link, PointerTensor, depth) == zero) {
        connection = Py_XNewRef(SLOT(link, PointerTensor, connection));
        if (is(connection, Connection) && is_current(connection) > 0) {
            facts = Py_XNewRef(SLOT(connection, Connection, facts));
            if (is(facts, Facts) && SLOT(facts, Facts, active) == Py_True)
                answer = number == of_gradient ? known_gradient(link, connection, facts)
                                            : known_fact(number, link, facts);
            Py_XDECREF(facts);
        }
        Py_XDECREF(connection);
    }
    Py_XDECREF(link);
    if (!answer && PyErr_Occurred()) return NULL;
    return answer ? answer : Py_NewRef(Py_NotImplemented);
}

/* The result of an operation on these arguments, or NotImplemented. */
static PyObject *call_operation(PyObject *operation, PyObject *const *args, Py_ssize_t count) {
    Site site = {0};
    PyObject *made = NULL;
    int good;
    if (!in_use || count > MOST_OPERANDS) Py_RETURN_NOTIMPLEMENTED;
    site.number = Py_XNewRef(PyDict_GetItemWithError(numbers, operation));
    if (!site.number) {
        if (PyErr_Occurred()) return NULL;
        return count == 1 && is(args[0], Wrapper) ? answer_known(operation, args[0])
                                                   : Py_NewRef(Py_NotImplemented);
    }
    if ((good = read_arguments(args, count, &site)) > 0) {
        site.lock = Py_XNewRef(SLOT(site.connection, Connection, lock));
        if (site.lock && !tell(site.lock, s_acquire, NULL)) {
            PyObject *kind, *value, *trace;
            made = request(&site);
            PyErr_Fetch(&kind, &value, &trace);
            if (tell(site.lock, s_release, NULL)) Py_CLEAR(made);
            if (kind) PyErr_Restore(kind, value, trace);
        }
        if (made == stored) Py_SETREF(made, new_pointer(&site));
    } else if (!good)
        made = Py_NewRef(Py_NotImplemented);
    leave(&site);
    return made;
}

/* --------------------------------------------------------------------------------- the module */

static PyObject *call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
    if (count != 2 || !PyTuple_CheckExact(args[1])) {
        PyErr_SetString(PyExc_TypeError, "call(operation, arguments) takes a tuple of arguments");
        return NULL;
    }
    return call_operation(args[0], &PyTuple_GET_ITEM(args[1], 0), PyTuple_GET_SIZE(args[1]));
}

/* What stands in the place of a function in Python: PointerTensor.call(cls, operation, args, kwargs), or
   with an operation a method of wrappers.  It tries the operation, and calls that function otherwise. */
typedef struct {
    PyObject_HEAD
    vectorcallfunc vectorcall;
    PyObject *function, *operation, *dict;
} Route;

static PyObject *route_call(PyObject *self, PyObject *const *args, size_t given, PyObject *keywords) {
    Route *route = (Route *)self;
    Py_ssize_t count = PyVectorcall_NARGS(given);
    PyObject *made = NULL;
    if (!in_use || keywords)
        ;
    else if (!route->operation) {
        if (count == 4 && PyTuple_CheckExact(args[2]) && is_empty(args[3])) {
            PyObject *const *items = &PyTuple_GET_ITEM(args[2], 0);
            if (!(made = call_operation(args[1], items, PyTuple_GET_SIZE(args[2])))) return NULL;
        }
    } else if (count && is(args[0], Wrapper)) {
        int good = answers(function_modes, NULL, NULL);
        if (good > 0) good = answers(is_overriding, NULL, Py_True);
        if (good < 0 || (good && !(made = call_operation(route->operation, args, count)))) return NULL;
    }
    if (made && made != Py_NotImplemented) return made;
    Py_XDECREF(made);
    return PyObject_Vectorcall(route->function, args, given, keywords);
}

static PyObject *route_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
    PyObject *function, *operation = NULL;
    static char *names[] = {"function", "operation", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "O|O", names, &function, &operation)) return NULL;
    Route *route = (Route *)type->tp_alloc(type, 0);
    if (!route) return NULL;
    route->vectorcall = route_call;
    route->function = Py_NewRef(function);
    route->operation = Py_XNewRef(operation);
    return (PyObject *)route;
}

static PyObject *route_bind(PyObject *self, PyObject *object, PyObject *kind) {
    return object && object != Py_None ? PyMethod_New(self, object) : Py_NewRef(self);
}

static int route_traverse(PyObject *self, visitproc visit, void *arg) {
    Py_VISIT(((Route *)self)->function);
    Py_VISIT(((Route *)self)->operation);
    Py_VISIT(((Route *)self)->dict);
    return 0;
}

static int route_clear(PyObject *self) {
    Py_CLEAR(((Route *)self)->function);
    Py_CLEAR(((Route *)self)->operation);
    Py_CLEAR(((Route *)self)->dict);
    return 0;
}

static void route_end(PyObject *self) {
    PyObject_GC_UnTrack(self);
    route_clear(self);
    Py_TYPE(self)->tp_free(self);
}

static PyGetSetDef route_attributes[] = {{"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict}, {0}};

static PyTypeObject RouteType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "syft._native.Route",
    .tp_basicsize = sizeof(Route),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL
        | Py_TPFLAGS_METHOD_DESCRIPTOR,
    .tp_new = route_new,
    .tp_call = PyVectorcall_Call,
    .tp_vectorcall_offset = offsetof(Route, vectorcall),
    .tp_descr_get = route_bind,
    .tp_dictoffset = offsetof(Route, dict),
    .tp_getset = route_attributes,
    .tp_traverse = route_traverse,
    .tp_clear = route_clear,
    .tp_dealloc = route_end,
};

static PyObject *use(PyObject *self, PyObject *wanted) {
    int before = in_use, now = PyObject_IsTrue(wanted);
    if (now < 0) return NULL;
    if (now && !ready) {
        PyErr_SetString(PyExc_RuntimeError, "setup() was not called");
        return NULL;
    }
    in_use = now;
    return PyBool_FromLong(before);
}

static int find(PyObject *known, const char *name, PyObject **place) {
    PyObject *value = known ? PyDict_GetItemString(known, name) : NULL;
    if (!value) PyErr_Format(PyExc_TypeError, "setup() needs %s", name);
    else Py_XSETREF(*place, Py_NewRef(value));
    return value ? 0 : -1;
}

static int find_slot(PyObject *kind, const char *name, Py_ssize_t *place) {
    PyObject *member = PyObject_GetAttrString(kind, name);
    if (!member) return -1;
    PyMemberDef *about = is(member, (PyObject *)&PyMemberDescr_Type)
        ? ((PyMemberDescrObject *)member)->d_member : NULL;
    Py_DECREF(member); /* the class keeps it */
    if (!about || about->type != T_OBJECT_EX) {
        PyErr_Format(PyExc_TypeError, "%R has no slot %s", kind, name);
        return -1;
    }
    *place = about->offset;
    return 0;
}

static PyObject *setup(PyObject *self, PyObject *args, PyObject *known) {
    PyObject *limits[2] = {NULL, NULL};
    if (!PyArg_ParseTuple(args, "")) return NULL;
    if (!known) return find(known, "numbers", &numbers), NULL;
    ready = in_use = 0;
#define FIND(name) if (find(known, #name, &name)) return NULL;
    KNOWN(FIND)
#define FIND_SLOT(kind, name) if (find_slot(kind, #name, &kind##_##name)) return NULL;
    SLOTS(FIND_SLOT)
#define INTERN(name) if (!s_##name && !(s_##name = PyUnicode_InternFromString(#name))) return NULL;
    NAMES(INTERN)
    if (find(known, "small", &limits[0]) || find(known, "tombstones", &limits[1])) return NULL;
    most_elements = PyLong_AsLongLong(limits[0]);
    most_tombstones = PyLong_AsLongLong(limits[1]);
    Py_DECREF(limits[0]);
    Py_DECREF(limits[1]);
    if (!zero && !(zero = PyLong_FromLong(0))) return NULL;
    if (PyErr_Occurred()) return NULL;
    ready = in_use = 1;
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"call", (PyCFunction)(void (*)(void))call, METH_FASTCALL,
     "call(operation, args): the result of a common operation on pointers, or NotImplemented."},
    {"use", use, METH_O, "use(wanted): whether operations are taken from now on; returns what was."},
    {"setup", (PyCFunction)(void (*)(void))setup, METH_VARARGS | METH_KEYWORDS,
     "setup(**known): what the code above calls and reads, by name."},
    {0},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "syft._native", "The common operation on pointers in C; see its source.", -1,
    methods,
};

PyMODINIT_FUNC PyInit__native(void) {
    PyObject *made = PyType_Ready(&RouteType) ? NULL : PyModule_Create(&module);
    if (made && PyModule_AddObjectRef(made, "Route", (PyObject *)&RouteType)) Py_CLEAR(made);
    return made;
}
