// Old name of holdfast/base/utf8.h. Threads: see there.
#pragma once

#include "holdfast/base/utf8.h"
