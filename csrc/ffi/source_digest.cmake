# MMAEMU_VERSION: the version in pyproject.toml. MMAEMU_SOURCE_DIGEST: sha256 over the sha256 of every
# compiled source, in path order, so that tests notice a compiled part older than the checkout.
file(STRINGS pyproject.toml MMAEMU_VERSION REGEX "^version = ")
string(REGEX REPLACE "^version = \"(.*)\"$" "\\1" MMAEMU_VERSION "${MMAEMU_VERSION}")

file(GLOB MMAEMU_COMPILED_SOURCES RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" CONFIGURE_DEPENDS
  csrc/numerics/*.h csrc/cpu/*.h csrc/cpu/*.cc csrc/ffi/*.h csrc/ffi/*.cc)
list(SORT MMAEMU_COMPILED_SOURCES)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS pyproject.toml
  ${MMAEMU_COMPILED_SOURCES})
set(MMAEMU_DIGESTS "")
foreach(source IN LISTS MMAEMU_COMPILED_SOURCES)
  file(SHA256 "${source}" digest)
  string(APPEND MMAEMU_DIGESTS "${digest}")
endforeach()
string(SHA256 MMAEMU_SOURCE_DIGEST "${MMAEMU_DIGESTS}")
