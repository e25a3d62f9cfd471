// See gloo/algorithm.h.
#pragma once

#include <chrono>
