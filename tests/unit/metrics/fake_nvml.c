/* A driver's library with two GPUs, of which the second does not tell its utilization (as with MIG). */
typedef struct { unsigned long long total, free, used; } memory_t;
typedef struct { unsigned int gpu, memory; } utilization_t;
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned int* count) { *count = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) { *device = (void*)(long)(index + 1); return 0; }
int nvmlDeviceGetMemoryInfo(void* device, memory_t* memory) {
  memory->total = 80;
  memory->free = 50;
  memory->used = 30 * (unsigned long long)(long)device;
  return 0;
}
int nvmlDeviceGetUtilizationRates(void* device, utilization_t* rates) {
  if ((long)device == 2) return 3; /* not supported */
  rates->gpu = 40;
  rates->memory = 10;
  return 0;
}
