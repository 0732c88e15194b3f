"""Long-lived and crowded processes: leaks, many threads, signals, workers of both kinds, no memory.

Each program runs in a process of its own, because it measures or limits the whole process.
"""

import json

from processes import run_python

SETUP = """
import json, os, resource, signal, threading, time
import jax, numpy as np
import mmaemu_jax as mj
from gemms import finite_codes, gemm

def rss():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

def operands(m, n, k, seed=1):
    return finite_codes(seed, (m, k)), finite_codes(seed + 1, (n, k))

def bits(x):
    return np.asarray(x).view(np.uint32)

step = jax.jit(lambda a, b: gemm(a, b, backend="cpu"))
MODEL = mj.get_preset("hopper").model

def on_host(a, b, **options):
    return bits(mj.host.gemm(a, b, model=MODEL, **options))
"""


def report(program: str, **environment: str) -> dict:
    return json.loads(run_python(SETUP + program, **environment).splitlines()[-1])


def test_memory_stays_level_over_many_calls():
    """10^5 calls; csrc/tests/test_handler_memory.cc counts the blocks of as many, one by one."""
    found = report("""
small, large = (operands(16, 16, 32), operands(48, 80, 160))
programs = [
    (step, tuple(map(jax.numpy.asarray, small)), 90_000),
    (step, tuple(map(jax.numpy.asarray, large)), 4_000),
    (on_host, large, 6_000),
]
expected = [bits(program(*case)) for program, case, _ in programs]

def calls(parts):
    for program, case, count in programs:
        for _ in range(count // parts):
            result = program(*case)
        jax.block_until_ready(result)
    return rss()

first = calls(20)
last = calls(1)
equal = [(bits(p(*case)) == y).all() for (p, case, _), y in zip(programs, expected, strict=True)]
print(json.dumps({"growth": last - first, "equal": bool(all(equal))}))
""")
    assert found["equal"]
    # A leak of one output tile per call would be 250 MiB.
    assert found["growth"] < 16 << 20


def test_many_threads_call_at_once():
    found = report("""
shapes = [(16, 16, 32), (300, 260, 96), (1, 700, 1000), (513, 3, 129)]
cases = [operands(*shape, seed=7 * i) for i, shape in enumerate(shapes)]
expected = [bits(step(*case)) for case in cases]
differing, calls = [], []
start = threading.Barrier(12)


def work(thread):
    start.wait()
    for i in range(40):
        at = (thread + i) % len(cases)
        calls.append(at)
        result = on_host(*cases[at], threads=2) if i % 4 == 3 else bits(step(*cases[at]))
        if not (result == expected[at]).all():
            differing.append((thread, i))

threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
for t in threads: t.start()
for t in threads: t.join()
print(json.dumps({"differing": differing, "calls": len(calls)}))
""")
    assert found == {"differing": [], "calls": 480}


def test_signals_arrive_during_a_call():
    """Handlers run on the main thread between kernels; system calls that they interrupt go on."""
    found = report("""
a, b = operands(512, 2048, 2048)
expected = bits(step(a, b))
count = 0

def on_alarm(*_):
    global count
    count += 1

signal.signal(signal.SIGALRM, on_alarm)
signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
equal = all((bits(step(a, b)) == expected).all() for _ in range(5))
signal.setitimer(signal.ITIMER_REAL, 0)
print(json.dumps({"equal": bool(equal), "signals": count}))
""")
    assert found["equal"]
    assert found["signals"] > 2


def test_an_interrupt_leaves_the_process_usable():
    found = report("""
a, b = operands(1024, 4096, 4096)
step(a, b).block_until_ready()
interrupted = False
signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job
try:
    threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    while True:
        step(a, b).block_until_ready()
except KeyboardInterrupt:
    interrupted = True
small = operands(40, 24, 64)
equal = (bits(step(*small)) == bits(gemm(*small, backend="reference"))).all()
print(json.dumps({"interrupted": interrupted, "equal": bool(equal)}))
""")
    assert found == {"interrupted": True, "equal": True}


def test_no_memory_is_an_error_and_leaves_the_process_usable():
    found = report("""
a, b = operands(8192, 8192, 16)
small = operands(40, 24, 64)
step(*small).block_until_ready()
compiled = step.lower(a, b).compile()
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * os.sysconf("SC_PAGE_SIZE") + (64 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
error = ""
try:
    compiled(a, b).block_until_ready()  # a result of 256 MiB
except jax.errors.JaxRuntimeError as e:
    error = str(e)
equal = (bits(step(*small)) == bits(step(*small))).all()
print(json.dumps({"error": error, "equal": bool(equal)}))
""")
    assert "RESOURCE_EXHAUSTED" in found["error"]
    assert found["equal"]


def test_no_memory_in_the_host_entry():
    """With ever more address space: MemoryError, at last from the kernels, and then the bits.

    On one thread: glibc aborts a process where a thread's first exception finds no memory at all.
    """
    found = report("""
a, b = operands(1024, 1024, 48)
on_host(a[:4], b[:4], threads=1)
pages = int(open("/proc/self/statm").read().split()[0])
errors, results = [], []
for room in range(0, 64 << 20, 1 << 20):
    limit = pages * os.sysconf("SC_PAGE_SIZE") + room
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))
    try:
        results.append(on_host(a, b, threads=1))
        break
    except MemoryError as e:
        errors.append(str(e))
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
equal = [bool((y == on_host(a, b)).all()) for y in results]
print(json.dumps({"errors": errors, "equal": equal}))
""")
    assert "std::bad_alloc" in found["errors"]
    assert found["equal"] == [True]


def test_forked_processes_compute_alike():
    """mmaemu_jax.host in children of a process whose other threads, XLA's too, are at work."""
    found = report("""
import warnings
warnings.simplefilter("ignore")  # JAX, and Python from 3.12 on, warn of every fork
a, b = operands(300, 260, 96)
expected = bits(step(a, b))
assert (on_host(a, b) == expected).all()  # all it needs is imported: docs/hardening.md
stop = threading.Event()

def work():
    while not stop.is_set():
        on_host(a, b, threads=2)
        step(a, b).block_until_ready()

threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
statuses = []
for _ in range(6):
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # a deadlock ends by a signal
        os._exit(0 if (on_host(a, b, threads=2) == expected).all() else 1)
    statuses.append(os.waitpid(pid, 0)[1])
stop.set()
for t in threads: t.join()
print(json.dumps({"statuses": statuses, "equal": bool((bits(step(a, b)) == expected).all())}))
""")
    assert found == {"statuses": [0] * 6, "equal": True}


def test_spawned_processes_compute_alike():
    program = """
import multiprocessing
from gemms import finite_codes

def child(seed):
    import numpy as np
    from gemms import gemm
    a, b = finite_codes(seed, (70, 96)), finite_codes(seed + 1, (33, 96))
    return np.asarray(gemm(a, b, backend="cpu")).tobytes()

if __name__ == "__main__":
    here = [child(seed) for seed in (1, 2)]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(pool.map(child, (1, 2)) == here)
"""
    # A spawned process imports the program by its file, so it needs one.
    outer = f"""
import pathlib, subprocess, sys, tempfile
with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "program.py")
    path.write_text({program!r})
    print(subprocess.run([sys.executable, path], check=True, capture_output=True, text=True).stdout)
"""
    assert run_python(outer) == "True"
