// The C API over a driver of one's own: what gapless_create does once it has opened the real one.
// Tests use it with a simulated GPU.
#pragma once

#include <memory>
#include <string>

#include "allocator/device/allocator.h"
#include "allocator/device/options.h"
#include "allocator/driver/driver.h"
#include "allocator/gapless.h"

namespace gapless {

class Live;

/// An allocator that owns `driver`. On failure `allocator` is left alone, and the driver is gone.
gapless_status create_over(std::unique_ptr<Driver> driver, const Options& options,
                           gapless_allocator** allocator);

/// What stands behind the handle.
Allocator& allocator_of(const gapless_allocator& allocator);
Driver& driver_of(const gapless_allocator& allocator);
Live& live_of(const gapless_allocator& allocator);

}  // namespace gapless
