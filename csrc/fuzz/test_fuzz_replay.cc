// The fuzz targets without a fuzzer: every file of the corpora, then pseudo-random inputs. A
// finding aborts; the input is then in the file that the environment variable MMAEMU_FUZZ_LAST
// names.
//   test_fuzz_replay CORPORA [random inputs per target]

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "fuzz/targets.h"
#include "tests/check.h"
#include "tests/random.h"
#include "tests/workload.h"

namespace mmaemu::fuzz {
namespace {

using Bytes = std::vector<uint8_t>;
using Target = Outcome (*)(const uint8_t* data, size_t size);

void keep(const Bytes& bytes) {
  const char* path = std::getenv("MMAEMU_FUZZ_LAST");
  if (path == nullptr) return;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

int64_t replay_corpus(Target target, const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const auto& path : files) {
    std::ifstream file(path, std::ios::binary);
    const Bytes bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    keep(bytes);
    target(bytes.data(), bytes.size());
  }
  return static_cast<int64_t>(files.size());
}

// How many of the random inputs described what.
struct Counts {
  int64_t skipped = 0;
  int64_t refused = 0;
  int64_t computed = 0;
};

Counts replay_random(Target target, int64_t count) {
  testing::Random random(1);
  Counts counts;
  for (int64_t i = 0; i < count; ++i) {
    Bytes bytes(static_cast<size_t>(random.between(1, 160)));
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.bits());
    keep(bytes);
    const Outcome outcome = target(bytes.data(), bytes.size());
    ++(outcome == Outcome::kSkipped   ? counts.skipped
       : outcome == Outcome::kRefused ? counts.refused
                                      : counts.computed);
  }
  return counts;
}

void replay(const char* name, Target target, const std::string& corpora, int64_t count) {
  const int64_t files = replay_corpus(target, std::filesystem::path(corpora) / name);
  const Counts counts = replay_random(target, count);
  std::printf("%s: %" PRId64 " files of the corpus; random inputs: %" PRId64 " computed, %" PRId64
              " refused, %" PRId64 " skipped\n",
              name, files, counts.computed, counts.refused, counts.skipped);
  MMAEMU_CHECK(files > 0, name);
  MMAEMU_CHECK(counts.computed > count / 4, name, counts.computed);
}

}  // namespace
}  // namespace mmaemu::fuzz

int main(int argc, char** argv) {
  using namespace mmaemu::fuzz;
  if (argc < 2) return 2;
  const int64_t count = argc > 2 ? std::atoll(argv[2]) : mmaemu::testing::cases(5000);
  replay("handler", fuzz_handler, argv[1], count);
  replay("plan", fuzz_plan, argv[1], count);
  replay("arithmetic", fuzz_arithmetic, argv[1], count);
  return mmaemu::testing::finish();
}
