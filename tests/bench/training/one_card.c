/* SPDX-License-Identifier: Apache-2.0 */
/* Stands in for a CUDA device that is not there, so that torch counts bytes of tensors that have
 * none: fake tensors compute nothing, but autograd asks which device is the current one, and
 * whether it is set up. For fake.py, by less.py, which preloads it: symbols of c10, libcudart and
 * libcuda.
 */
#include <stdbool.h>
#include <string.h>

signed char _ZN3c104cuda12device_countEv(void)
{
    return 1;
}

signed char _ZN3c104cuda28device_count_ensure_non_zeroEv(void)
{
    return 1;
}

bool _ZN3c104cuda17hasPrimaryContextEa(signed char device)
{
    (void)device;
    return false;
}

signed char _ZN3c104cuda14current_deviceEv(void)
{
    return 0;
}

int _ZN3c104cuda9GetDeviceEPa(signed char *device)
{
    *device = 0;
    return 0;
}

int _ZN3c104cuda9SetDeviceEab(signed char device, bool forced)
{
    (void)device, (void)forced;
    return 0;
}

int _ZN3c104cuda14MaybeSetDeviceEa(signed char device)
{
    (void)device;
    return 0;
}

signed char _ZN3c104cuda14ExchangeDeviceEa(signed char device)
{
    (void)device;
    return 0;
}

signed char _ZN3c104cuda19MaybeExchangeDeviceEa(signed char device)
{
    (void)device;
    return 0;
}

int _ZN3c104cuda14GetDeviceCountEPi(int *count)
{
    *count = 1;
    return 0;
}

void _ZN3c104cuda15SetTargetDeviceEv(void)
{
}

int cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = *greatest = 0;
    return 0;
}

int cudaGetDevice(int *device)
{
    *device = 0;
    return 0;
}

int cudaSetDevice(int device)
{
    (void)device;
    return 0;
}

int cudaGetDeviceCount(int *count)
{
    *count = 1;
    return 0;
}

int cudaStreamIsCapturing(void *stream, int *status)
{
    (void)stream;
    *status = 0;
    return 0;
}

int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    (void)device;
    *flags = 0;
    *active = 0;
    return 0;
}

/* An sm_90. The struct is CUDA 13's cudaDeviceProp: its size, and where its major number lies. */
enum { PROPERTIES_BYTES = 1008, MAJOR_AT = 360 };
int cudaGetDeviceProperties(unsigned char *properties, int device)
{
    const int major = 9;
    (void)device;
    memset(properties, 0, PROPERTIES_BYTES);
    memcpy(properties + MAJOR_AT, &major, sizeof major);
    return 0;
}
