// Loads libcurl when a thread first asks a metadata service. Ordinary linking would make every start of every
// program 7 ms slower, because libcurl brings 35 libraries for protocols that Holdfast never uses. Most
// machines never ask.
//
// Errors: return value. Threads: any.
#pragma once

#include <curl/curl.h>

#include <string>

namespace holdfast { inline namespace v0_2 { namespace internal {

struct Curl {
  decltype(&::curl_easy_init) easy_init;
  decltype(&::curl_easy_reset) easy_reset;
  decltype(&::curl_easy_setopt) easy_setopt;
  decltype(&::curl_easy_getinfo) easy_getinfo;
  decltype(&::curl_easy_cleanup) easy_cleanup;
  decltype(&::curl_easy_strerror) easy_strerror;
  decltype(&::curl_multi_init) multi_init;
  decltype(&::curl_multi_add_handle) multi_add_handle;
  decltype(&::curl_multi_remove_handle) multi_remove_handle;
  decltype(&::curl_multi_perform) multi_perform;
  decltype(&::curl_multi_poll) multi_poll;
  decltype(&::curl_multi_wakeup) multi_wakeup;
  decltype(&::curl_multi_info_read) multi_info_read;
  decltype(&::curl_multi_cleanup) multi_cleanup;
  decltype(&::curl_slist_append) slist_append;
  decltype(&::curl_slist_free_all) slist_free_all;
};

// nullptr if there is no libcurl, or only one from before 2020; `why` then has the reason.
const Curl* load_curl(std::string& why);

}}}  // namespace holdfast::v0_2::internal
