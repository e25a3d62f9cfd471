#include "holdfast/store/retention.h"

#include <set>

namespace holdfast::inline v1 {
namespace {

constexpr int kLeastTrusted = 2;

}  // namespace

std::vector<FileId> superfluous(const RetentionView& view, Retention keep) {
  std::set<FileId> stay;
  int kept = 0;
  int trusted = 0;
  for (const FileId id : view.present) {
    if (kept++ < keep.count || id >= view.newest_acknowledged) stay.insert(id);
    if (view.trusted.contains(id) && trusted++ < kLeastTrusted) stay.insert(id);
  }
  if (trusted < kLeastTrusted) return {};
  if (view.newest_finite) stay.insert(*view.newest_finite);
  std::vector<FileId> rest;
  for (auto id = view.present.rbegin(); id != view.present.rend(); ++id) {
    if (!stay.contains(*id)) rest.push_back(*id);
  }
  return rest;
}

}  // namespace holdfast::inline v1
