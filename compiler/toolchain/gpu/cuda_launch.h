// A launch by the driver of CUDA, from integers: launch_cuda(function, grid, threads, shared, device, stream, values...)
// LIBRARY is the driver's file, and there are at most MOST_VALUES values. Each takes eight bytes, of which a function
// reads as many as its parameter has; two more, 0, are there for functions that want memory beside.

extern "C" {
void* dlopen(const char*, int);
void* dlsym(void*, const char*);
}

typedef int (*LaunchKernel)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                            void**);
typedef int (*RetainContext)(void**, int);
typedef int (*SetContext)(void*);
typedef int (*NameError)(int, const char**);

struct Driver {
  LaunchKernel launch;
  RetainContext retain;
  SetContext set;
  NameError name;
};

constexpr i64 BEFORE_VALUES = 6, BESIDE = 2;
constexpr int NO_CONTEXT = 201;

static const Driver& driver() {
  static const Driver found = [] {
    void* library = dlopen(LIBRARY, 2);
    Driver made = {};
    if (!library) return made;
    made.launch = (LaunchKernel)dlsym(library, "cuLaunchKernel");
    made.retain = (RetainContext)dlsym(library, "cuDevicePrimaryCtxRetain");
    made.set = (SetContext)dlsym(library, "cuCtxSetCurrent");
    made.name = (NameError)dlsym(library, "cuGetErrorString");
    return made;
  }();
  return found;
}

// A thread that has called nothing of CUDA yet has no context: it gets the device's own, which torch works in.
static int launched(const Driver& cuda, const i64* v, void** parameters) {
  const auto launch = [&] {
    return cuda.launch((void*)v[0], (unsigned)v[1], 1, 1, (unsigned)v[2], 1, 1, (unsigned)v[3], (void*)v[5], parameters,
                       0);
  };
  const int status = launch();
  void* context = 0;
  if (status != NO_CONTEXT || cuda.retain(&context, (int)v[4]) || cuda.set(context)) return status;
  return launch();
}

static PyObject* call_launch_cuda(PyObject*, PyObject* const* arguments, long count) {
  i64 v[BEFORE_VALUES + MOST_VALUES + BESIDE] = {};
  void* parameters[MOST_VALUES + BESIDE];
  if (count < BEFORE_VALUES || count > BEFORE_VALUES + MOST_VALUES)
    return PyErr_Format(PyExc_TypeError, "launch_cuda takes %ld to %ld integers, %ld given", (long)BEFORE_VALUES,
                        (long)(BEFORE_VALUES + MOST_VALUES), count);
  if (!take(arguments, count, count, "launch_cuda", v)) return 0;
  for (i64 i = 0; i < count - BEFORE_VALUES + BESIDE; i++) parameters[i] = &v[BEFORE_VALUES + i];
  const Driver& cuda = driver();
  if (!cuda.launch || !cuda.retain || !cuda.set || !cuda.name)
    return PyErr_Format(PyExc_RuntimeError, "the driver of CUDA is not there (%s)", LIBRARY);
  void* state = PyEval_SaveThread();
  const int status = launched(cuda, v, parameters);
  PyEval_RestoreThread(state);
  if (status) {
    const char* name = "unknown error";
    cuda.name(status, &name);
    return PyErr_Format(PyExc_RuntimeError, "CUDA error in a launch: %s (%d)", name, status);
  }
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}

static PyMethodDef def_launch_cuda = {"launch_cuda", (void*)call_launch_cuda, 0x80, 0};
extern "C" PyObject* get_launch_cuda() { return PyCFunction_NewEx(&def_launch_cuda, 0, 0); }
