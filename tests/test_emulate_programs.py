"""At least 200 random programs under emulate, on eight devices, in processes of their own."""

import json
from collections import Counter

from processes import output_of, start_python

PROGRAMS, PROCESSES = 200, 2
PROGRAM = "import random_programs; random_programs.main({first}, {count})"
EIGHT_DEVICES = {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"}

#: How often each transformation and mesh is used at least.
LEAST = {
    "jit": 50,
    "vmap": 40,
    "vmap_last": 40,
    "nested vmap": 15,
    "scan": 40,
    "fori": 40,
    "cond": 40,
    "remat": 50,
    "grad": 40,
    "shard_map": 40,
    "sharded_jit": 40,
    "8x1": 25,
    "4x2": 25,
    "2x2x2": 25,
}


def test_random_programs_have_the_bits_of_the_plain_call(record_property):
    each = PROGRAMS // PROCESSES
    programs = [
        start_python(PROGRAM.format(first=i * each, count=each), **EIGHT_DEVICES)
        for i in range(PROCESSES)
    ]
    counts = Counter()
    for program in programs:
        counts.update(json.loads(output_of(program)))
    record_property("programs", dict(counts))
    assert counts["programs"] == counts["emulate"] == PROGRAMS
    assert {name: counts[name] for name in LEAST if counts[name] < LEAST[name]} == {}
