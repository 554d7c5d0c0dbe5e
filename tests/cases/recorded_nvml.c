/* Stands in for NVIDIA's libnvidia-ml.so.1 with values of two cards that never change, but for energy.
 * Card 0 has an energy counter (mJ since a fixed moment at 250 W), card 1 has none and draws 100 W.
 * With RECORDED_NVML=hang a reading never comes back, with RECORDED_NVML=none there is no driver. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NOT_SUPPORTED 3
#define DRIVER_NOT_LOADED 9

typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
typedef struct { unsigned gpu, memory; } rates;
typedef struct {
  uint32_t field, scope; int64_t timestamp, latency; unsigned type, status;
  union { double d; unsigned u; unsigned long long ull; } value;
} field_value;

static int is(const char *word) { const char *mode = getenv("RECORDED_NVML"); return mode && !strcmp(mode, word); }

int nvmlInitWithFlags(unsigned flags) { (void)flags; return is("none") ? DRIVER_NOT_LOADED : 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **card) { *card = (void *)(uintptr_t)(index + 1); return 0; }
int nvmlDeviceGetTotalEnergyConsumption(void *card, unsigned long long *energy) {
  if (is("hang")) for (;;) pause();
  if (card != (void *)1) return NOT_SUPPORTED;
  struct timespec now; clock_gettime(CLOCK_MONOTONIC, &now);
  *energy = 250ull * (now.tv_sec * 1000ull + now.tv_nsec / 1000000);
  return 0;
}
int nvmlDeviceGetPowerUsage(void *card, unsigned *power) { *power = card == (void *)1 ? 251000 : 100000; return 0; }
int nvmlDeviceGetFieldValues(void *card, int count, field_value *values) {
  for (int i = 0; i < count; i++) { values[i].status = card == (void *)1 ? 0 : NOT_SUPPORTED; values[i].value.u = 249000; }
  return 0;
}
int nvmlDeviceGetMemoryInfo_v2(void *card, memory *out) { out->used = card == (void *)1 ? 101425604608ull : 3145728; return 0; }
int nvmlDeviceGetUtilizationRates(void *card, rates *out) { out->gpu = card == (void *)1 ? 97 : 0; out->memory = 40; return 0; }
int nvmlDeviceGetClockInfo(void *card, unsigned type, unsigned *clock) { (void)card; *clock = type == 1 ? 1980 : 0; return 0; }
int nvmlDeviceGetTemperature(void *card, unsigned sensor, unsigned *degrees) { (void)card; (void)sensor; *degrees = 61; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *card, unsigned long long *reasons) { *reasons = card == (void *)1 ? 4 : 1; return 0; }
int nvmlShutdown(void) { return 0; }
const char *nvmlErrorString(int status) { return status == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Not Supported"; }
