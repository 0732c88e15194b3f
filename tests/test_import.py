"""Importing the package: what it loads, what it leaves alone, and names that load later."""

import importlib
import json
import pickle
import sys
from types import ModuleType

import pytest
from processes import run_python

import mmaemu_jax as mj

#: All that `import mmaemu_jax` loads: enough to register the kernels. Everything else waits for its
#: first use, so that the import stays far below 50 ms (beyond jax's own).
LOADED = ["", "._native", ".config", ".cuda", ".errors", ".lazy_package", ".registration"]


def test_import_loads_next_to_nothing():
    program = """
import json, sys
import jax
before = set(sys.modules)
import mmaemu_jax
new = set(sys.modules) - before
standard = {m for m in new if m.partition(".")[0] in sys.stdlib_module_names}
print(json.dumps([sorted(new - standard), sorted(standard)]))
"""
    others, standard = json.loads(run_python(program))
    assert others == [f"mmaemu_jax{name}" for name in LOADED]
    assert standard == []


# The state of a process that a library has no business to change.
STATE = """
import decimal, faulthandler, gc, json, locale, logging, os, random, signal, sys, warnings
import jax, numpy as np

def control():
    # Rounding and subnormals, by what they do to numbers unknown before the program runs.
    one, tiny = float(len(sys.argv)), float(sys.float_info.min)
    single = np.float32(np.finfo(np.float32).tiny)
    return [(one / 3).hex(), (-one / 3).hex(), (tiny / 2).hex(), str(single / 2)]

def log(name):
    logger = logging.getLogger(name)
    return [name, logger.level, logger.propagate, list(map(repr, logger.handlers + logger.filters))]

def process(entry):
    with open("/proc/self/status") as status:
        return next(line for line in status if line.startswith(entry))

def state():
    return {
        "threads": process("Threads"),
        "open files": sorted(os.listdir("/proc/self/fd")),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "jax.config": {name: repr(value) for name, value in jax.config.values.items()},
        "loggers": [log(None), *map(log, LOGGERS), logging.root.manager.disable],
        "warnings": list(map(repr, warnings.filters)),
        "signals": [repr(signal.getsignal(s)) for s in sorted(signal.valid_signals())],
        "handlers below Python": [process(s) for s in ("SigBlk", "SigIgn", "SigCgt")],
        "numpy": [np.geterr(), repr(np.geterrcall()), np.get_printoptions()["precision"]],
        "random numbers": [hash(random.getstate()), np.random.get_state()[1].tolist()],
        "floating point": control(),
        "decimal": repr(decimal.getcontext()),
        "locale": locale.setlocale(locale.LC_ALL),
        "collector": [gc.isenabled(), gc.get_threshold(), gc.callbacks],
        "imports": [sys.path, list(map(repr, sys.meta_path)), list(map(repr, sys.path_hooks))],
        "hooks": [repr(h) for h in (sys.excepthook, sys.displayhook, sys.gettrace(), sys.stdout)],
        "limits": [sys.getrecursionlimit(), sys.getswitchinterval(), faulthandler.is_enabled()],
    }

LOGGERS = list(logging.root.manager.loggerDict)
os.environ.clear()  # the process that started this one has imported the package
before = state()
"""


def test_import_leaves_the_process_alone():
    """The import, and then the use of every public name."""
    program = f"""{STATE}
def changed():
    after = state()
    return [[key, before[key], after[key]] for key in before if before[key] != after[key]]

import mmaemu_jax
imported = changed()
from mmaemu_jax import *
assert callable(scaled_mm) and callable(emulate)
print(json.dumps([imported, changed()]))
jax.config.update("jax_num_cpu_devices", 3)  # refused once a backend has started
assert jax.device_count() == 3
"""
    assert json.loads(run_python(program)) == [[], []]


def test_names_load_inside_a_trace():
    """Whatever a module computes when it is imported, it does not belong to the program traced."""
    program = """
import jax, jax.numpy as jnp, numpy as np
import mmaemu_jax as mj

x = jnp.ones((16, 32), jnp.float8_e4m3fn)

def layer(x):
    for name in dir(mj):
        getattr(mj, name)
    return mj.scaled_mm(x, x.T, 0.5, 0.5, out_dtype=jnp.float32, splitk=1)

with jax.checking_leaks(), jax.enable_x64(True):
    inside = jax.jit(jax.vmap(layer))(x[None])[0]
outside = mj.scaled_mm(x, x.T, 0.5, 0.5, out_dtype=jnp.float32, splitk=1)
mj.testing.assert_bitwise_equal(inside, outside)
mj.testing.assert_bitwise_equal(mj.quantize(jnp.ones((16, 32)), "e4m3"), x)
print(mj.emulate(lambda x: x + 1)(np.float32(1)))
"""
    assert run_python(program) == "2.0"


SHARED = sorted(name for name, home in mj._home_of.items() if name == home or name == "accumulate")


@pytest.mark.parametrize("name", SHARED)
def test_a_module_does_not_hide_the_function_of_its_name(name):
    """Whichever is imported first."""
    module = importlib.import_module(f"mmaemu_jax.{name}")
    assert isinstance(module, ModuleType)
    assert module is sys.modules[f"mmaemu_jax.{name}"]
    assert callable(getattr(mj, name))


def test_modules_first():
    """In a process where the modules are imported before any function is looked up."""
    program = f"""
import importlib
import mmaemu_jax as mj
for name in {SHARED}:
    importlib.import_module(f"mmaemu_jax.{{name}}")
print([name for name in {SHARED} if not callable(getattr(mj, name))])
"""
    assert run_python(program) == "[]"


def test_names_can_be_replaced_and_restored(monkeypatch):
    original = mj.quantize
    with monkeypatch.context() as patch:
        patch.setattr(mj, "quantize", len)
        assert mj.quantize("ab") == 2
    assert mj.quantize is original


def test_a_star_import_gives_every_public_name():
    names: dict = {}
    exec("from mmaemu_jax import *", names)
    assert {*mj._home_of, *mj._public_modules} == set(names) - {"__builtins__"}


def test_public_names_pickle():
    """And a process that has imported nothing yet can load them."""
    values = [getattr(mj, name) for name in sorted(mj._home_of)]
    assert pickle.loads(pickle.dumps(values)) == values
    program = f"import pickle\nprint(len(pickle.loads({pickle.dumps(values)!r})))"
    assert run_python(program) == str(len(values))
