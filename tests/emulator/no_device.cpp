// A libcuda.so.1 as on a machine that has a driver and no device: cuInit fails, and nothing else is there.
#define API extern "C" __attribute__((visibility("default"))) int

API cuInit(unsigned) { return 100; }

API cuDriverGetVersion(int *version) {
    *version = 13000;
    return 0;
}
