// A libcuda.so.1 as on a machine with a driver and without a device: cuInit fails. Only cuDriverGetVersion is there, too.
#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return 100; }

API cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
