// How XLA's attributes become the numbers of csrc/numerics. The dictionaries are written by
// mmaemu_jax/primitive.py.
#pragma once

#include <cstdint>
#include <string_view>

#include "ffi/gemm_call.h"
#include "numerics/accumulate.h"
#include "numerics/instruction_model.h"
#include "xla/ffi/api/api.h"

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(mmaemu::InstructionModel,
                                      ::xla::ffi::StructMember<int32_t>("nfma"),
                                      ::xla::ffi::StructMember<int32_t>("frac"),
                                      ::xla::ffi::StructMember<int32_t>("frac_out"),
                                      ::xla::ffi::StructMember<int32_t>("min_exp"),
                                      ::xla::ffi::StructMember<bool>("late_c"));

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(mmaemu::AccumulationPlan,
                                      ::xla::ffi::StructMember<int64_t>("chunk_k"),
                                      ::xla::ffi::StructMember<int64_t>("splits"),
                                      ::xla::ffi::StructMember<int64_t>("tile_k"),
                                      ::xla::ffi::StructMember<bool>("interleaved"),
                                      ::xla::ffi::StructMember<bool>("pairwise"));

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(mmaemu::ffi_glue::GemmAttributes,
                                      ::xla::ffi::StructMember<mmaemu::InstructionModel>("model"),
                                      ::xla::ffi::StructMember<mmaemu::AccumulationPlan>("plan"),
                                      ::xla::ffi::StructMember<std::string_view>("b_layout"),
                                      ::xla::ffi::StructMember<std::string_view>("kernel"),
                                      ::xla::ffi::StructMember<bool>("has_scale_result"),
                                      ::xla::ffi::StructMember<bool>("has_c"));
