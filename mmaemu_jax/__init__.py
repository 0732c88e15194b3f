"""Inside JAX programs, the bits that ``torch._scaled_mm`` returns on a reference GPU."""

import pkgutil
import sys
from typing import TYPE_CHECKING

# In a checkout this folder shadows the installed package, whose compiled part lies there.
__path__ = pkgutil.extend_path(__path__, __name__)

from mmaemu_jax import _native, registration
from mmaemu_jax import config as config  # it reads the environment when the package is imported
from mmaemu_jax.lazy_package import make_lazy

if TYPE_CHECKING:
    from mmaemu_jax import errors as errors
    from mmaemu_jax import host as host
    from mmaemu_jax import profiling as profiling
    from mmaemu_jax import studies as studies
    from mmaemu_jax import testing as testing
    from mmaemu_jax import training as training
    from mmaemu_jax.accumulate import SplitK as SplitK
    from mmaemu_jax.accumulate import SplitRule as SplitRule
    from mmaemu_jax.api import accumulate as accumulate
    from mmaemu_jax.api import dot as dot
    from mmaemu_jax.api import scaled_mm as scaled_mm
    from mmaemu_jax.backends import BackendStatus as BackendStatus
    from mmaemu_jax.backends import backends_status as backends_status
    from mmaemu_jax.batch_invariance import BatchInvarianceReport as BatchInvarianceReport
    from mmaemu_jax.batch_invariance import batch_invariance as batch_invariance
    from mmaemu_jax.contraction import Contraction as Contraction
    from mmaemu_jax.contraction import contract as contract
    from mmaemu_jax.explain import CallPlan as CallPlan
    from mmaemu_jax.explain import explain as explain
    from mmaemu_jax.exporting import export_checks as export_checks
    from mmaemu_jax.gemm_cost import GemmCost as GemmCost
    from mmaemu_jax.gemm_cost import gemm_cost as gemm_cost
    from mmaemu_jax.identify import Identification as Identification
    from mmaemu_jax.identify import identify as identify
    from mmaemu_jax.instruction import Preset as Preset
    from mmaemu_jax.instruction import get_preset as get_preset
    from mmaemu_jax.instruction import list_presets as list_presets
    from mmaemu_jax.outputs import CheckedGemm as CheckedGemm
    from mmaemu_jax.outputs import OutputsReport as OutputsReport
    from mmaemu_jax.outputs import RecordedGemm as RecordedGemm
    from mmaemu_jax.outputs import check_outputs as check_outputs
    from mmaemu_jax.outputs import read_gemm as read_gemm
    from mmaemu_jax.outputs import write_gemm as write_gemm
    from mmaemu_jax.platforms import Profile as Profile
    from mmaemu_jax.platforms import SplitDecision as SplitDecision
    from mmaemu_jax.platforms import get_profile as get_profile
    from mmaemu_jax.platforms import list_profiles as list_profiles
    from mmaemu_jax.platforms import read_profile as read_profile
    from mmaemu_jax.platforms import resolve_splitk as resolve_splitk
    from mmaemu_jax.platforms import write_profile as write_profile
    from mmaemu_jax.quantize import quantize as quantize
    from mmaemu_jax.selftest import SelfTestReport as SelfTestReport
    from mmaemu_jax.selftest import selftest as selftest
    from mmaemu_jax.trace import DotTrace as DotTrace
    from mmaemu_jax.trace import trace_dot as trace_dot
    from mmaemu_jax.transforms import Emulated as Emulated
    from mmaemu_jax.transforms import EmulatedGemm as EmulatedGemm
    from mmaemu_jax.transforms import EmulationReport as EmulationReport
    from mmaemu_jax.transforms import GemmSite as GemmSite
    from mmaemu_jax.transforms import JaxprReport as JaxprReport
    from mmaemu_jax.transforms import LeftProduct as LeftProduct
    from mmaemu_jax.transforms import emulate as emulate
    from mmaemu_jax.transforms import explain_jaxpr as explain_jaxpr
    from mmaemu_jax.transforms import record_gemms as record_gemms

# The same for Python: importing the package costs next to nothing, and registers the kernels.
make_lazy(
    sys.modules[__name__],
    modules=("errors", "host", "profiling", "studies", "testing", "training"),
    names={
        "accumulate": ("SplitK", "SplitRule"),
        "api": ("accumulate", "dot", "scaled_mm"),
        "backends": ("BackendStatus", "backends_status"),
        "batch_invariance": ("BatchInvarianceReport", "batch_invariance"),
        "contraction": ("Contraction", "contract"),
        "explain": ("CallPlan", "explain"),
        "exporting": ("export_checks",),
        "gemm_cost": ("GemmCost", "gemm_cost"),
        "identify": ("Identification", "identify"),
        "instruction": ("Preset", "get_preset", "list_presets"),
        "outputs": (
            *("CheckedGemm", "OutputsReport", "RecordedGemm"),
            *("check_outputs", "read_gemm", "write_gemm"),
        ),
        "platforms": (
            *("Profile", "SplitDecision", "get_profile", "list_profiles", "read_profile"),
            *("resolve_splitk", "write_profile"),
        ),
        "quantize": ("quantize",),
        "selftest": ("SelfTestReport", "selftest"),
        "trace": ("DotTrace", "trace_dot"),
        "transforms": (
            *("Emulated", "EmulatedGemm", "EmulationReport", "LeftProduct", "emulate"),
            *("GemmSite", "JaxprReport", "explain_jaxpr", "record_gemms"),
        ),
    },
)
registration.register()

__version__: str = _native.VERSION
