/* SPDX-License-Identifier: 0BSD */
/* How much of a device's memory is taken, by whom, and whether that stays so while the model
 * runs. */
#include "ul_internal.h"

#include <inttypes.h>

void ul_device_memory_print(const struct ul_device_memory *device, uint64_t asked_count)
{
    char shown[UL_SHOWN_BYTES];
    printf("memory of %s, bytes\n", ul_shown(shown, device->device));
    printf("  %-42s %14" PRIu64 "\n", "arena, one allocation", device->allocated_bytes);
    if (device->offload_bytes > 0)
        printf("  %-42s %14" PRIu64 "\n", "offloaded to page-locked memory of the host",
               device->offload_bytes);
    if (device->granted_bytes > device->allocated_bytes)
        printf("  %-42s %14" PRIu64 "\n", "taken for it beyond that",
               device->granted_bytes - device->allocated_bytes);
    printf("  %-42s %14" PRIu64 "\n",
           device->context_shared ? "context, and what other programs hold" : "context",
           device->context_bytes);
    for (uint32_t i = 0; i < device->library_count; i++)
        printf("  %-42s %14" PRIu64 "\n", device->library_names[i], device->library_bytes[i]);
    printf("  %-42s %14" PRIu64 "\n", "code and local memory", device->code_bytes);
    snprintf(shown, sizeof shown, "captured run, %" PRIu64 " launches", device->launch_count);
    if (device->uncaptured == NULL)
        printf("  %-42s %14" PRIu64 "\n", shown, device->graph_bytes);
    else
        printf("  the run is not captured: %s\n", device->uncaptured);
    printf("  %-42s %14" PRIu64 "\n", "free", device->free_bytes);
    for (uint32_t i = 0; i < device->library_count; i++)
        if (device->calls_of[i].own > 0)
            printf("  kernels of the program run %" PRIu32 " of %" PRIu32 " calls of %s\n",
                   device->calls_of[i].own, device->calls_of[i].planned, device->library_names[i]);
    printf("  free bytes %s over %" PRIu64 " runs: %" PRIu64 " (--iterations), %" PRIu64
           " to find what is touched\n",
           device->free_bytes == device->ready_free_bytes ? "stayed the same" : "changed",
           device->run_count, asked_count, device->run_count - asked_count);
}

void ul_device_memory_write(struct ul_json *json, const struct ul_device_memory *device)
{
    ul_json_open(json, "device", '{');
    ul_json_text(json, "name", device->device);
    ul_json_count(json, "total_bytes", device->total_bytes);
    ul_json_count(json, "allocated_bytes", device->allocated_bytes);
    ul_json_count(json, "offload_bytes", device->offload_bytes);
    ul_json_count(json, "granted_bytes", device->granted_bytes);
    ul_json_count(json, "context_bytes", device->context_bytes);
    ul_json_bool(json, "context_shared", device->context_shared != 0);
    ul_json_open(json, "library_bytes", '{');
    for (uint32_t i = 0; i < device->library_count; i++)
        ul_json_count(json, device->library_names[i], device->library_bytes[i]);
    ul_json_close(json, '}');
    ul_json_open(json, "library_calls", '{');
    for (uint32_t i = 0; i < device->library_count; i++) {
        ul_json_open(json, device->library_names[i], '{');
        ul_json_count(json, "planned", device->calls_of[i].planned);
        ul_json_count(json, "own", device->calls_of[i].own);
        ul_json_close(json, '}');
    }
    ul_json_close(json, '}');
    ul_json_count(json, "code_bytes", device->code_bytes);
    ul_json_count(json, "graph_bytes", device->graph_bytes);
    ul_json_count(json, "launch_count", device->launch_count);
    ul_json_count(json, "apart_count", device->apart_count);
    ul_json_count(json, "run_count", device->run_count);
    ul_json_count(json, "replay_count", device->replay_count);
    ul_json_count(json, "ready_free_bytes", device->ready_free_bytes);
    ul_json_count(json, "free_bytes", device->free_bytes);
    ul_json_close(json, '}');
}
