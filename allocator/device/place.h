// Place: where a live block lies, so that one can be put there again.
#pragma once

#include "allocator/driver/driver.h"
#include "allocator/heap/windows.h"

namespace gapless {

/// A place in a window, or in the home (address 0: units from the home's begin).
struct Place {
  DeviceAddress window_address = 0;
  WindowSpot spot;
};

}  // namespace gapless
