// libcupti.so.13: there is nothing to profile. Profilers ask once, and go on with the host alone.
#include <cstdint>

#define CUPTI extern "C" __attribute__((visibility("default")))

namespace {
constexpr int kSuccess = 0;
constexpr int kNotSupported = 27;
}  // namespace

CUPTI int cuptiGetVersion(std::uint32_t* version) {
  *version = 130000;
  return kSuccess;
}
CUPTI int cuptiGetResultString(int, const char** text) {
  *text = "the simulated GPU has nothing to profile";
  return kSuccess;
}
// What profilers go on to call all the same.
#define NOTHING(name) \
  CUPTI int name() { return kNotSupported; }
NOTHING(cuptiSubscribe)
NOTHING(cuptiUnsubscribe)
NOTHING(cuptiFinalize)
NOTHING(cuptiEnableCallback)
NOTHING(cuptiEnableDomain)
NOTHING(cuptiActivityDisable)
NOTHING(cuptiActivityEnable)
NOTHING(cuptiActivityEnableCudaEventDeviceTimestamps)
NOTHING(cuptiActivityEnableDriverApi)
NOTHING(cuptiActivityEnableRuntimeApi)
NOTHING(cuptiActivityFlushAll)
NOTHING(cuptiActivityPopExternalCorrelationId)
NOTHING(cuptiActivityPushExternalCorrelationId)
NOTHING(cuptiActivityRegisterCallbacks)
NOTHING(cuptiActivityRegisterTimestampCallback)
NOTHING(cuptiActivitySetAttribute)
