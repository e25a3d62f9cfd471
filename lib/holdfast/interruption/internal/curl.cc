#include "holdfast/interruption/internal/curl.h"

#include <dlfcn.h>

#include <array>
#include <mutex>

namespace holdfast { inline namespace v0_2 { namespace internal {
namespace {

// Both have the same interface; they differ in the encryption library, which Holdfast does not use.
constexpr std::array kLibraries{"libcurl.so.4", "libcurl-gnutls.so.4"};

template <class Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

bool find_all(void* library, Curl& curl) {
  return find(library, "curl_easy_init", curl.easy_init) &&
         find(library, "curl_easy_reset", curl.easy_reset) &&
         find(library, "curl_easy_setopt", curl.easy_setopt) &&
         find(library, "curl_easy_getinfo", curl.easy_getinfo) &&
         find(library, "curl_easy_cleanup", curl.easy_cleanup) &&
         find(library, "curl_easy_strerror", curl.easy_strerror) &&
         find(library, "curl_multi_init", curl.multi_init) &&
         find(library, "curl_multi_add_handle", curl.multi_add_handle) &&
         find(library, "curl_multi_remove_handle", curl.multi_remove_handle) &&
         find(library, "curl_multi_perform", curl.multi_perform) &&
         find(library, "curl_multi_poll", curl.multi_poll) &&
         find(library, "curl_multi_wakeup", curl.multi_wakeup) &&
         find(library, "curl_multi_info_read", curl.multi_info_read) &&
         find(library, "curl_multi_cleanup", curl.multi_cleanup) &&
         find(library, "curl_slist_append", curl.slist_append) &&
         find(library, "curl_slist_free_all", curl.slist_free_all);
}

struct Loaded {
  Curl curl{};
  bool whole = false;
};

// Never unloaded: the library's own threads may outlive the last user.
Loaded load() {
  Loaded loaded;
  for (const char* const name : kLibraries) {
    // At run time: machines without libcurl, and runs without a cloud, need it not.
    // Local, so that its symbols do not meet those of another libcurl in the program.
    void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    decltype(&::curl_global_init) global_init = nullptr;
    // An older library lacks a function; the other name may be a newer one.
    if (library == nullptr || !find_all(library, loaded.curl)) continue;
    // Initialises nothing, because plain HTTP needs nothing. Otherwise curl_easy_init would initialise all.
    if (!find(library, "curl_global_init", global_init) || global_init(CURL_GLOBAL_NOTHING) != CURLE_OK)
      continue;
    loaded.whole = true;
    break;
  }
  return loaded;
}

}  // namespace

const Curl* load_curl(std::string& why) {
  static const Loaded loaded = load();
  if (loaded.whole) return &loaded.curl;
  why = "there is no libcurl.so.4 (apt-get install libcurl4)";
  return nullptr;
}

}}}  // namespace holdfast::v0_2::internal
