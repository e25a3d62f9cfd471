/* The driver's library and NVML in one: two GPUs, which CUDA and NVML count in opposite orders. MIG is on on CUDA's first. */
#include <stdio.h>
int cuInit(unsigned int flags) { return (int)flags; }
int cuDeviceGetCount(int* count) { *count = 2; return 0; }
int cuDeviceGet(int* device, int index) { *device = index; return 0; }
int cuDeviceGetName(char* name, int length, int device) { return snprintf(name, (size_t)length, "Fake %d", device) < 0; }
int cuDeviceTotalMem_v2(size_t* bytes, int device) { *bytes = 1000000000; return device < 0; }
int cuDeviceGetPCIBusId(char* place, int length, int device) {
  return snprintf(place, (size_t)length, "0000:0%d:00.0", 2 - device) < 0;
}
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) { *device = (void*)(long)(index + 1); return 0; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* place, void** device) { *device = (void*)(long)(place[6] - '0'); return 0; }
int nvmlDeviceGetMigMode(void* device, unsigned int* now, unsigned int* next) {
  *now = *next = (long)device == 2;
  return 0;
}
