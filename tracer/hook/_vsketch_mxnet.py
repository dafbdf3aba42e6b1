"""Step marks and names from MXNet and Horovod, by wrapping a few functions of theirs.

What Python calls returns before the work is done. True ends come from marker operations: functions of
libvsketch that the engine runs when the arrays they read are written.

* `_LIB.MXAutogradSetIsRecording`: the first switch to recording after a step begins the forward pass;
* `_LIB.MXAutogradBackwardEx`: backward begins; a marker that reads the losses is the end of forward; a marker
  that reads the gradient which backward writes last (the earliest layer's) is the end of backward;
* `Trainer._allreduce_grads`, `Trainer._update`: the optimizer step; a marker that reads all weights is its end;
* `horovod_mxnet_*_async`: which tensor the next engine operation carries.

Steps are counted by the first trainer that steps. Operations before its first step belong to step -1.
"""

from __future__ import annotations

import ctypes
import os
import sys
import weakref
from typing import Any

# enum vsk_mark of vsketch.h
FORWARD_BEGIN, BACKWARD_CALL, FORWARD_END, BACKWARD_END = 1, 2, 3, 4
STEP_CALL, UPDATE_CALL, UPDATE_RETURN, UPDATE_END = 5, 6, 7, 8

# mxnet::FnProperty::kCPUPrioritized: workers apart from the compute queue. That queue is first in, first out, and
# a marker would stand behind whole bulks of layers there; here it only waits for a core.
CPU_PRIORITIZED = ctypes.c_int(3)
MARKER_PRIORITY = 1 << 20
DTYPES = {
    0: ("float32", 4),
    1: ("float64", 8),
    2: ("float16", 2),
    3: ("uint8", 1),
    4: ("int32", 4),
    5: ("int8", 1),
    6: ("int64", 8),
    7: ("bool", 1),
}
SETTINGS = (
    "HOROVOD_CYCLE_TIME",
    "HOROVOD_FUSION_THRESHOLD",
    "HOROVOD_CACHE_CAPACITY",
    "HOROVOD_AUTOTUNE",
    "HOROVOD_TIMELINE",
    "HOROVOD_HIERARCHICAL_ALLREDUCE",
    "MXNET_EXEC_BULK_EXEC_TRAIN",
    "MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD",
    "MXNET_OPTIMIZER_AGGREGATION_SIZE",
    "MXNET_ENGINE_TYPE",
    "MXNET_CPU_WORKER_NTHREADS",
    "OMP_NUM_THREADS",
    "OMPI_MCA_mpi_yield_when_idle",
    "FASTHVD_AUX",
)


class Context(ctypes.Structure):
    """mxnet::Context: device type (1 is CPU) and number."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


CPU = Context(1, 0)


class Hook:
    """The state of one traced interpreter."""

    def __init__(self, library: Any) -> None:
        self.library = library
        self.mxnet: Any = None  # ctypes library of mxnet
        self.steps = 0  # finished optimizer steps
        self.forward = False  # between the first record() and backward()
        self.mark_forward = False  # whether this forward pass is wanted
        self.trainer: Any = None  # weak reference to the one that counts steps
        self.numbers: dict[
            tuple[str, bytes | None], int
        ] = {}  # (operation, Horovod's name) -> its number in the logs
        self.parameters: dict[
            int, tuple[int, Any]
        ] = {}  # handle of a gradient -> (index in the trainer, parameter)
        self.orders: dict[
            int, dict[str, int]
        ] = {}  # id of a trainer -> {parameter name: place in the order of creation}
        self.ends: Ends | None = None  # arrays for the two markers of the trainer
        self.batch_size: Any = None
        self.stop_after = int(os.environ.get("VSKETCH_STOP_AFTER", "0"))  # steps; 0: the script decides
        self.shutdown = None  # horovod's

    # ---- mxnet.autograd: forward and backward ----------------------------------------------------------

    def after_autograd(self, module: Any) -> None:
        """Wrap the two C functions through which every record() and backward() goes."""
        self.library.join()
        native = self.mxnet = module._LIB
        set_recording, backward = native.MXAutogradSetIsRecording, native.MXAutogradBackwardEx

        def traced_set_recording(wanted: Any, previous: Any) -> Any:
            if not self.forward and getattr(wanted, "value", wanted):
                self.forward = True
                self.begin_forward()
            return set_recording(wanted, previous)

        def traced_backward(
            count: Any, heads: Any, head_gradients: Any, variable_count: Any, *rest: Any
        ) -> Any:
            if getattr(variable_count, "value", variable_count):  # autograd.grad(): no training pass
                return backward(count, heads, head_gradients, variable_count, *rest)
            self.forward = False
            if self.library.recording():
                self.library.mark(BACKWARD_CALL, self.steps)
            if self.mark_forward:
                self.push_marker(FORWARD_END, count, heads)
            status = backward(count, heads, head_gradients, variable_count, *rest)
            if self.ends is not None and self.library.recording():
                self.push_marker(BACKWARD_END, len(self.ends.gradients), self.ends.gradients)
            return status

        native.MXAutogradSetIsRecording = traced_set_recording
        native.MXAutogradBackwardEx = traced_backward
        native.MXKVStoreCreate = self.ranked(native.MXKVStoreCreate)

    def ranked(self, create: Any) -> Any:
        """`create` of a KVStore that tells the worker's rank where the store is a distributed one."""

        def traced_create(kind: Any, handle: Any) -> Any:
            status = create(kind, handle)
            worker = os.environ.get("DMLC_ROLE") == "worker"  # the others have no rank to ask for
            if status == 0 and worker and b"dist" in getattr(kind, "value", b""):
                rank, size = ctypes.c_int(), ctypes.c_int()
                self.mxnet.MXKVStoreGetRank(handle._obj, ctypes.byref(rank))
                self.mxnet.MXKVStoreGetGroupSize(handle._obj, ctypes.byref(size))
                self.library.identity(f"rank={rank.value}\nsize={size.value}".encode())
            return status

        return traced_create

    def begin_forward(self) -> None:
        """A forward pass of the step to come begins."""
        before = self.library.recording()
        if self.steps:
            self.library.step(self.steps)
        # One forward pass more than wanted: it ends the last wanted step.
        self.mark_forward = before or self.library.recording()
        if self.mark_forward:
            self.library.mark(FORWARD_BEGIN, self.steps)
            self.library.sample()

    def push_marker(self, mark: Any, count: Any, handles: Any) -> None:
        """Have the engine stamp `mark` as soon as the arrays `handles` are written."""
        self.mxnet.MXEnginePushSyncND(
            self.library.marker,
            ctypes.c_void_p(mark | (self.steps << 8)),
            None,
            ctypes.byref(CPU),
            handles,
            ctypes.c_int(count),
            None,
            ctypes.c_int(0),
            ctypes.byref(CPU_PRIORITIZED),
            ctypes.c_int(MARKER_PRIORITY),
            b"vsketch_marker",
        )

    # ---- mxnet.gluon.trainer: the optimizer step -------------------------------------------------------

    def after_trainer(self, module: Any) -> None:
        """Wrap the two halves of Trainer.step; Horovod's trainer overrides the first, so wrap its caller."""
        trainer_class = module.Trainer
        create, update = trainer_class.__init__, trainer_class._update
        step, allreduce_grads = trainer_class.step, trainer_class.allreduce_grads

        def traced_create(trainer: Any, params: Any, *arguments: Any, **options: Any) -> Any:
            # The trainer sorts by name; a dictionary of parameters still has the order of the layers.
            names = [p.name for p in params.values()] if hasattr(params, "values") else []
            self.orders[id(trainer)] = {name: place for place, name in enumerate(names)}
            return create(trainer, params, *arguments, **options)

        def traced_step(trainer: Any, batch_size: Any, *arguments: Any, **options: Any) -> Any:
            self.batch_size = batch_size
            self.begin_step(trainer)
            return step(trainer, batch_size, *arguments, **options)

        def traced_allreduce_grads(trainer: Any, *arguments: Any, **options: Any) -> Any:
            self.begin_step(trainer)
            return allreduce_grads(trainer, *arguments, **options)

        def traced_update(trainer: Any, *arguments: Any, **options: Any) -> Any:
            if not self.counts(trainer):
                return update(trainer, *arguments, **options)
            recording = self.library.recording()
            if recording:
                self.library.mark(UPDATE_CALL, self.steps)
            result = update(trainer, *arguments, **options)
            if recording:
                self.library.mark(UPDATE_RETURN, self.steps)
                if self.ends is not None:
                    self.push_marker(UPDATE_END, len(self.ends.weights), self.ends.weights)
            self.steps += 1
            if self.steps == self.stop_after:
                self.leave()
            return result

        trainer_class.__init__ = traced_create
        trainer_class.step = traced_step
        trainer_class.allreduce_grads = traced_allreduce_grads
        trainer_class._update = traced_update

    def leave(self) -> None:
        """Enough steps: every rank does this after the same step, so all leave together and in peace."""
        self.mxnet.MXNDArrayWaitAll()
        if self.shutdown is not None:
            self.shutdown()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)  # whatever else the script wanted to do is not for a trial

    def counts(self, trainer: Any) -> bool:
        """Whether `trainer` is the one that counts steps."""
        return self.trainer is not None and self.trainer() is trainer

    def begin_step(self, trainer: Any) -> None:
        """The script calls step() or allreduce_grads(): what is pushed now belongs to this step."""
        if self.trainer is None:
            # Weak: a trainer that lived until the interpreter's end would keep its KVStore from shutting down.
            self.trainer = weakref.ref(trainer)
        if not self.counts(trainer):
            return
        if not self.steps:
            self.library.step(0)
        if self.library.recording():
            self.library.mark(STEP_CALL, self.steps)
        if self.ends is None or not self.ends.valid():
            self.learn_parameters(trainer)

    def learn_parameters(self, trainer: Any) -> None:
        """Note index, name, shape and order of the trainer's parameters, and keep arrays for the markers."""
        trained = [(i, p) for i, p in enumerate(trainer._params) if p.grad_req != "null"]
        try:
            self.ends = Ends([parameter for _, parameter in trained], self.orders.get(id(trainer), {}))
        except Exception:  # parameters whose initialisation is still deferred: next step
            return
        for index, parameter in trained:
            self.parameters[parameter.list_grad()[0].handle.value] = (index, parameter.name)
        self.library.write(
            parameters=[
                {
                    "index": i,
                    "name": p.name,
                    "shape": list(p.shape),
                    "dtype": str(p.list_grad()[0].dtype.__name__),
                    "order": self.orders.get(id(trainer), {}).get(p.name),
                }
                for i, p in trained
            ],
            batch_size=self.batch_size if isinstance(self.batch_size, int) else None,
            aggregation=getattr(trainer._optimizer, "aggregate_num", 0),
            settings={name: os.environ[name] for name in SETTINGS if name in os.environ},
        )

    # ---- horovod.mxnet: which tensor an operation carries ----------------------------------------------

    def after_horovod(self, module: Any) -> None:
        """Wrap the C functions that push one operation each; the name is their third argument."""
        native = module.MPI_MXNET_LIB_CTYPES
        counts = {"allreduce": 7, "allgather": 5, "reducescatter": 5, "broadcast": None, "alltoall": None}
        for operation, count_at in counts.items():
            name = f"horovod_mxnet_{operation}_async"
            if hasattr(native, name):
                setattr(native, name, self.named(getattr(native, name), operation, count_at))
        self.shutdown = module._basics.shutdown
        init = module._basics.init

        def traced_init(*arguments: Any, **options: Any) -> Any:
            result = init(*arguments, **options)
            self.library.identity(f"rank={module.rank()}\nsize={module.size()}".encode())
            return result

        module._basics.init = traced_init

    def named(self, push: Any, operation: Any, count_at: Any) -> Any:
        """`push` that first tells the library the name of what it pushes."""
        numbers, tell, recording = self.numbers, self.library.name, self.library.recording

        def traced_push(handles: Any, outputs: Any, name: Any, *rest: Any) -> Any:
            if not recording():
                return push(handles, outputs, name, *rest)
            text = getattr(name, "value", name)
            number = numbers.get((operation, text))
            if number is None:
                count = 1 if count_at is None else rest[count_at - 3].value
                number = self.learn_operation(operation, text, handles, count)
            tell(number)
            try:
                return push(handles, outputs, name, *rest)
            finally:
                tell(0)

        return traced_push

    def learn_operation(self, operation: Any, name: Any, handles: Any, count: Any) -> int:
        """A name seen for the first time: give it a number, and note what its tensors are."""
        number = len(self.numbers) + 1
        self.numbers[operation, name] = number
        if hasattr(handles, "_obj"):  # ctypes.byref(handle)
            handles = handles._obj
        values = [handles.value] if hasattr(handles, "value") else [handles[i] for i in range(count)]
        self.library.write(
            operation=operation,
            number=number,
            name=None if name is None else name.decode(errors="replace"),
            tensors=[self.describe(value) for value in values],
        )
        return number

    def describe(self, handle: Any) -> dict[str, Any]:
        """Size and type of the array behind `handle`, and its parameter where it is a known gradient."""
        dimensions, dtype = ctypes.c_int(), ctypes.c_int()
        shape = ctypes.POINTER(ctypes.c_int64)()
        array = ctypes.c_void_p(handle)
        self.mxnet.MXNDArrayGetShapeEx64(array, ctypes.byref(dimensions), ctypes.byref(shape))
        self.mxnet.MXNDArrayGetDType(array, ctypes.byref(dtype))
        name, size = DTYPES.get(dtype.value, (str(dtype.value), 1))
        elements = 1
        for i in range(dimensions.value):
            elements *= shape[i]
        index, name_of_parameter = self.parameters.get(handle, (None, None))
        return {
            "bytes": elements * size,
            "dtype": name,
            "index": index,
            "parameter": name_of_parameter,
        }


class Ends:
    """The arrays that the markers of one trainer read: kept, so that their handles stay good."""

    def __init__(self, parameters: Any, order: Any) -> None:
        handle = ctypes.c_void_p
        self._ends_of_list = weakref.ref(parameters[0]), weakref.ref(parameters[-1])
        # A marker that waited for every gradient would hold back the allreduce of each; the parameter that
        # was made first belongs to the layer that backward reaches last, and its allreduce is the last anyway.
        first = min(parameters, key=lambda parameter: order.get(parameter.name, len(order)))
        self._gradients = [first.list_grad()[0]]
        self._weights = [parameter.list_data()[0] for parameter in parameters]
        self.gradients = (handle * 1)(self._gradients[0].handle)
        self.weights = (handle * len(self._weights))(*[array.handle for array in self._weights])

    def valid(self) -> bool:
        """Whether the arrays are still those of the parameters (a cast or a reset replaces them)."""
        first, last = (parameter() for parameter in self._ends_of_list)
        if first is None or last is None:
            return False
        return first.list_data()[0] is self._weights[0] and last.list_data()[0] is self._weights[-1]
