# MMAEMU_VERSION: the version in pyproject.toml. MMAEMU_SOURCE_DIGEST and MMAEMU_CUDA_SOURCE_DIGEST: sha256
# over the sha256 of every compiled source of an extension, in path order, so that tests notice a
# compiled part older than the checkout.
file(STRINGS "${CMAKE_CURRENT_SOURCE_DIR}/pyproject.toml" MMAEMU_VERSION REGEX "^version = ")
string(REGEX REPLACE "^version = \"(.*)\"$" "\\1" MMAEMU_VERSION "${MMAEMU_VERSION}")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS pyproject.toml)

function(mmaemu_source_digest result)
  file(GLOB sources RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS ${ARGN})
  list(SORT sources)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${sources})
  set(digests "")
  foreach(source IN LISTS sources)
    file(SHA256 "${CMAKE_CURRENT_SOURCE_DIR}/${source}" digest)
    string(APPEND digests "${digest}")
  endforeach()
  string(SHA256 digest "${digests}")
  set(${result} "${digest}" PARENT_SCOPE)
endfunction()

set(MMAEMU_CPU_SOURCES
  csrc/numerics/*.h csrc/cpu/*.h csrc/cpu/*.cc csrc/ffi/*.h csrc/ffi/*.cc)
mmaemu_source_digest(MMAEMU_SOURCE_DIGEST ${MMAEMU_CPU_SOURCES})
mmaemu_source_digest(MMAEMU_CUDA_SOURCE_DIGEST
  ${MMAEMU_CPU_SOURCES} csrc/cuda/*.h csrc/cuda/*.cc csrc/cuda/*.cu)
