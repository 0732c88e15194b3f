"""What reads or rewrites whole JAX functions, by their jaxprs."""

from mmaemu_jax.transforms.emulate import Emulated as Emulated
from mmaemu_jax.transforms.emulate import emulate as emulate
from mmaemu_jax.transforms.emulation_report import EmulatedGemm as EmulatedGemm
from mmaemu_jax.transforms.emulation_report import EmulationReport as EmulationReport
from mmaemu_jax.transforms.emulation_report import LeftProduct as LeftProduct
from mmaemu_jax.transforms.explain_jaxpr import explain_jaxpr as explain_jaxpr
from mmaemu_jax.transforms.jaxpr_report import GemmSite as GemmSite
from mmaemu_jax.transforms.jaxpr_report import JaxprReport as JaxprReport
from mmaemu_jax.transforms.record import record_gemms as record_gemms
