"""Prints the folder of XLA's FFI headers, without importing jaxlib.

A handler built with old headers loads in newer jaxlib, not the other way round (the FFI API's minor
version is checked at registration), so the build asks for jaxlib 0.8.0's: API 0.1, accepted by
jaxlib 0.10.2 and by the newest one. Newer headers are refused here, where the mistake is made.
"""

import importlib.util
import pathlib
import re
import sys

MAX_API_MINOR = 3  # jaxlib 0.10.2, the oldest supported at run time

spec = importlib.util.find_spec("jaxlib")
if spec is None or spec.origin is None:
    sys.exit("jaxlib is not installed for this interpreter")
include = pathlib.Path(spec.origin).parent / "include"
c_api = include / "xla" / "ffi" / "api" / "c_api.h"
if not c_api.exists():
    sys.exit(f"{c_api} does not exist")
minor = re.search(r"#define XLA_FFI_API_MINOR (\d+)", c_api.read_text())
if minor is None or int(minor.group(1)) > MAX_API_MINOR:
    sys.exit(
        f"{c_api} has FFI API 0.{minor.group(1) if minor else '?'}; a wheel built with it would "
        f"not load in jaxlib 0.10.2 (API 0.{MAX_API_MINOR}). Build with jaxlib==0.8.0's headers."
    )
print(include)
