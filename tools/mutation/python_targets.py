"""Which Python files are mutated, most wanted first, and which tests can kill their mutants.

A test is a file or one of its functions. Tests that start processes are of no use: a mutant lives
in one process.
"""

_REFERENCE = (
    "tests/numerics/test_block_fma.py",
    "tests/numerics/test_accumulate.py",
    "tests/numerics/test_specials.py",
    "tests/numerics/test_formats.py",
    "tests/numerics/test_epilogue.py",
)
_SPLITS = (
    "tests/test_package.py::test_dataclasses_are_frozen",
    "tests/test_split_resolver.py",
    "tests/test_split_table.py",
    "tests/test_split_warnings.py",
    "tests/test_split_acceptance.py",
    "tests/test_envelope.py",
    "tests/test_platforms.py",
)
_CALLS = (
    "tests/test_package.py::test_dataclasses_are_frozen",
    "tests/test_api_checks.py",
    "tests/test_api.py",
    "tests/test_api_dot.py",
    "tests/test_explain.py",
)
_TRAINING = (
    "tests/test_training_scaling.py",
    "tests/test_training_state.py",
    "tests/test_training.py",
)

#: Tests that take seconds, of what others test too.
LEFT_OUT = {
    "tests/test_explain.py::test_explain_and_the_call_never_disagree",
    "tests/test_explain.py::test_the_recorded_argument_grid",
    "tests/numerics/test_accumulate.py::test_compiled_and_interpreted_bits_are_the_same",
}

TARGETS: dict[str, tuple[str, ...]] = {
    "mmaemu_jax/reference/_f64.py": _REFERENCE,
    "mmaemu_jax/reference/block_fma.py": _REFERENCE,
    "mmaemu_jax/reference/accumulate.py": _REFERENCE,
    "mmaemu_jax/reference/epilogue.py": _REFERENCE,
    "mmaemu_jax/reference/_tiles.py": _REFERENCE,
    "mmaemu_jax/reference/__init__.py": _REFERENCE,
    "mmaemu_jax/accumulate.py": ("tests/test_model_data.py", *_SPLITS, *_CALLS),
    "mmaemu_jax/epilogue.py": ("tests/test_model_data.py", "tests/numerics/test_epilogue.py"),
    "mmaemu_jax/formats.py": (
        "tests/test_model_data.py",
        "tests/numerics/test_formats.py",
        *_CALLS,
    ),
    "mmaemu_jax/plan.py": (*_CALLS, "tests/test_split_warnings.py"),
    "mmaemu_jax/platforms/profile.py": (
        *_SPLITS,
        "tests/test_docs.py::test_table_of_profiles",
        *_CALLS,
    ),
    "mmaemu_jax/platforms/profile_file.py": ("tests/test_profile_file.py",),
    "mmaemu_jax/platforms/shipped_profiles.py": (
        "tests/test_platforms.py",
        "tests/test_docs.py::test_table_of_profiles",
        "tests/test_profile_file.py",
        *_CALLS,
    ),
    "mmaemu_jax/platforms/envelope.py": _SPLITS,
    "mmaemu_jax/platforms/split_decision.py": (*_SPLITS, *_CALLS),
    "mmaemu_jax/platforms/split_request.py": (*_SPLITS, *_CALLS),
    "mmaemu_jax/platforms/split_resolver.py": (*_SPLITS, *_CALLS),
    "mmaemu_jax/platforms/split_setting.py": _SPLITS,
    "mmaemu_jax/platforms/split_table.py": _SPLITS,
    "mmaemu_jax/platforms/table_steps.py": _SPLITS,
    "mmaemu_jax/platforms/live_query.py": (*_SPLITS, "tests/test_cuda_cublaslt.py"),
    "mmaemu_jax/instruction.py": (
        "tests/test_model_data.py",
        "tests/test_api_dot.py",
        "tests/test_platforms.py",
        "tests/test_docs.py::test_table_of_presets",
        *_CALLS,
    ),
    "mmaemu_jax/checks.py": _CALLS,
    "mmaemu_jax/call.py": _CALLS,
    "mmaemu_jax/prepare.py": _CALLS,
    "mmaemu_jax/quantize.py": ("tests/test_quantize.py",),
    "mmaemu_jax/codes.py": ("tests/test_codes.py",),
    "mmaemu_jax/reduction.py": ("tests/test_reduction.py",),
    "mmaemu_jax/slices_of_k.py": ("tests/test_contraction.py",),
    "mmaemu_jax/batch_invariance.py": (
        "tests/test_batch_invariance.py",
        "tests/test_package.py::test_dataclasses_are_frozen",
    ),
    "mmaemu_jax/training/scaling.py": _TRAINING,
    "mmaemu_jax/training/cast.py": _TRAINING,
    "mmaemu_jax/training/recipe.py": _TRAINING,
    "mmaemu_jax/training/gemms.py": _TRAINING,
    "mmaemu_jax/training/layout.py": _TRAINING,
}
