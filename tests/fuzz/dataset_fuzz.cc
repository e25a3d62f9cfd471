// The reader of files of labelled records (CIFAR-10's are such). The first bytes of the input say what is
// expected of the file, the rest is the file.
#include <sys/mman.h>
#include <unistd.h>

#include "holdfast/base/error.h"
#include "holdfast/data/internal/record_file.h"
#include "memory_budget.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace holdfast;
  using namespace holdfast::test;
  if (size < 3) return 0;
  const internal::RecordFormat format{.what = "pictures",
                                      .records = 1 + data[0] % 16,
                                      .record_bytes = 1 + data[1] % 64,
                                      .classes = 1 + data[2] % 16};
  const std::span<const std::uint8_t> content(data + 3, size - 3);

  static const int scratch = ::memfd_create("records", MFD_CLOEXEC);
  require(scratch >= 0 && ::ftruncate(scratch, 0) == 0, "no memory for a scratch file");
  require(::pwrite(scratch, content.data(), content.size(), 0) == static_cast<ssize_t>(content.size()),
          "the scratch file cannot be written");

  const MemoryBudget budget(budget_for(size));
  const auto expected = static_cast<std::size_t>(format.records * format.record_bytes);
  std::vector<std::uint8_t> records(expected);
  try {
    internal::read_record_file("/proc/self/fd/" + std::to_string(scratch), format, records);
  } catch (const RefusedError& error) {
    require(std::string_view(error.what()).find("pictures") != std::string_view::npos,
            "a refusal without a name");
    return 0;
  }
  require(content.size() == expected, "a file of another size was accepted");
  require(std::equal(records.begin(), records.end(), content.begin()),
          "records with other bytes than the file's");
  for (std::size_t at = 0; at < expected; at += static_cast<std::size_t>(format.record_bytes)) {
    require(records[at] < format.classes, "a label that does not exist was accepted");
  }
  return 0;
}
