/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether there is a device, and what CUDA's context takes of it: by cudaMemGetInfo, and by what the driver counts
 * while this process holds the context, which COMMAND tells.
 *
 * usage: device [COMMAND]     exit: 0 there is one, 3 there is none
 */
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    int count = 0, major = 0, minor = 0, processors = 0;
    size_t free_bytes = 0, total_bytes = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0)
        error = cudaMemGetInfo(&free_bytes, &total_bytes);
    if (error != cudaSuccess || count == 0) {
        fprintf(stderr, "no CUDA device: %s\n", error == cudaSuccess ? "there are 0" : cudaGetErrorString(error));
        return 3;
    }
    (void)cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    (void)cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0);
    (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    printf("devices %d; the first: compute capability %d.%d, %d multiprocessors\n", count, major, minor, processors);
    printf("bytes of the device %zu, free with a context %zu, the context and other processes %zu\n", total_bytes, free_bytes,
           total_bytes - free_bytes);
    printf("this process is %ld\n", (long)getpid());
    fflush(stdout);
    if (argc == 2 && system(argv[1]) != 0)
        printf("%s: failed\n", argv[1]);
    return 0;
}
