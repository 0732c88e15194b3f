"""What does JAX itself return for FP8 dots here, and does emulate return the same?

XLA's flags belong to a process, so each combination is one: this file, run as a program, writes
the optimised HLO and the bits of every case to a folder.
"""

import json
import os
import pathlib
import subprocess
import sys
import time

#: XLA's flags by name; those of a GPU are unknown to no other backend.
FLAGS = {
    "triton autotuned": "",
    "triton": "--xla_gpu_autotune_level=0",
    "cublas autotuned": "--xla_gpu_enable_triton_gemm=false",
    "cublas": "--xla_gpu_enable_triton_gemm=false --xla_gpu_autotune_level=0",
}
SHAPES = ((64, 128, 256), (128, 64, 1040), (256, 256, 8192))


def compare(run, budget: float):
    """Every combination in a process of its own, the most telling first."""
    from gpu_check import Outcome

    end, rows = time.monotonic() + budget, {}
    names = list(FLAGS)[::-1]
    for name in names[:1] if run.dry else names:
        left = end - time.monotonic()
        if left < 10:
            rows[name] = "the time is over"
            continue
        folder = run.out / "native_jax" / name.replace(" ", "_")
        folder.mkdir(parents=True, exist_ok=True)
        flags = f"{os.environ.get('XLA_FLAGS', '')} {FLAGS[name]}".strip()
        environment = os.environ | {"XLA_FLAGS": flags}
        command = [sys.executable, __file__, str(folder), "dry" if run.dry else "gpu"]
        try:
            done = subprocess.run(
                command, env=environment, timeout=left, capture_output=True, text=True, check=False
            )
        except subprocess.TimeoutExpired:
            rows[name] = "timed out"
            continue
        rows[name] = (
            json.loads((folder / "verdicts.json").read_text())
            if done.returncode == 0
            else done.stderr[-500:]
        )
    ran = [row for row in rows.values() if isinstance(row, dict)]
    text = "; ".join(
        f"{name}: {sum(bool(v) for v in row.values())} of {len(row)} explained"
        if isinstance(row, dict)
        else f"{name}: {row.splitlines()[-1] if row else 'failed'}"
        for name, row in rows.items()
    )
    return Outcome("", bool(ran), text, details=rows)


def programs():
    """The cases: name -> (function, arguments)."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    random = np.random.default_rng(0)
    dims = (((1,), (1,)), ((), ()))
    for m, n, k in SHAPES:
        a, b = (jnp.asarray(random.normal(size=(rows, k)), jnp.float8_e4m3fn) for rows in (m, n))
        for precision in ("DEFAULT", "HIGH", "HIGHEST"):

            def dot(a, b, precision=precision):
                return jax.lax.dot_general(
                    a, b, dims, precision=jax.lax.Precision[precision],
                    preferred_element_type=jnp.bfloat16,
                )  # fmt: skip

            yield f"{precision} {m}x{n}x{k}", dot, (a, b)
    yield from flax_programs(random)


def flax_programs(random):
    """flax's FP8 dot, forward and backward, where flax is installed."""
    import importlib.util

    if importlib.util.find_spec("flax") is None:
        return
    import jax
    import jax.numpy as jnp
    from flax import linen as nn
    from flax.linen import fp8_ops

    layer = nn.Dense(128, dot_general_cls=fp8_ops.Fp8DirectDotGeneralOp, dtype=jnp.bfloat16)
    x = jnp.asarray(random.normal(size=(64, 256)), jnp.bfloat16)
    variables = layer.init(jax.random.key(0), x)

    def forward(variables, x):
        return layer.apply(variables, x)

    def backward(variables, x):
        return jax.grad(lambda x: forward(variables, x).astype(jnp.float32).sum())(x)

    yield "flax forward", forward, (variables, x)
    yield "flax backward", backward, (variables, x)


def explanations(function, arguments, bits: bytes) -> list[str]:
    """The epilogue modes and accumulations with which emulate returns these bits."""
    import warnings

    import jax
    import numpy as np

    import mmaemu_jax as mj

    found = []
    for epilogue in ("xla", "jaxpr"):
        for fast in (None, True, False):
            emulated = mj.emulate(function, "hopper-xla", epilogue=epilogue, use_fast_accum=fast)
            with jax.default_device(jax.devices("cpu")[0]), warnings.catch_warnings():
                warnings.simplefilter("ignore", mj.errors.MmaemuWarning)
                on_cpu = jax.device_put(arguments, jax.devices("cpu")[0])
                actual = np.asarray(jax.jit(emulated)(*on_cpu))
            if actual.tobytes() == bits:
                mode = {None: "as its precision says", True: "fast", False: "slow"}[fast]
                found.append(f"epilogue {epilogue}, {mode}")
    return found


def main(folder: pathlib.Path, dry: bool) -> None:
    import jax
    import numpy as np

    verdicts = {}
    for number, (name, function, arguments) in enumerate(programs()):
        if dry and number >= 1:
            break
        compiled = jax.jit(function).lower(*arguments).compile()
        output = np.asarray(compiled(*arguments))
        stem = name.replace(" ", "_")
        (folder / f"{stem}.hlo.txt").write_text(compiled.as_text())
        np.save(folder / f"{stem}.npy", output.view(np.uint8))
        verdicts[name] = explanations(function, arguments, output.tobytes())
        (folder / "verdicts.json").write_text(json.dumps(verdicts, indent=1))


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parents[2]
    sys.path.insert(0, str(root))
    main(pathlib.Path(sys.argv[1]), sys.argv[2] == "dry")
