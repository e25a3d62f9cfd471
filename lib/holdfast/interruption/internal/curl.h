// libcurl, loaded when the first metadata service is asked, by the thread that asks. Linked in the ordinary
// way it makes every start of every program 7 ms longer (it brings 35 libraries, for protocols that nobody
// here speaks), also on machines where nothing is ever asked.
//
// Threads: load_curl() by any.
#pragma once

#include <curl/curl.h>

#include <string>

namespace holdfast::inline v1::internal {

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

// Null where there is none (or one from before 2020); `why` then says so.
const Curl* load_curl(std::string& why);

}  // namespace holdfast::inline v1::internal
