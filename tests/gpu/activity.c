/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a program of target cuda allocates, by CUPTI's memory activity: a library that CUDA loads
 * into the program where CUDA_INJECTION64_PATH names it. The program needs not know of it.
 *
 * It writes the file that ULLAGE_ACTIVITY names, a line each, in no order; times are nanoseconds:
 *
 *     alloc   KIND BYTES TIME      memory that the program or a library asked CUDA for
 *     release KIND BYTES TIME
 *     launch  TIME                 of a graph: a run
 *     end     COUNT                the program ended; records that CUPTI could not keep
 *     error   TEXT                 CUPTI does not serve here: nothing else is to be believed
 *
 * KIND: device, managed, array, static (variables of device code), pinned (of the host), other.
 * What CUDA takes for its context, code and graphs is no memory that anybody asked for, and is seen
 * by what is free alone.
 */
#include <cupti.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define BUFFER_BYTES (1 << 16)

static FILE *out; /* each line is one call, which stdio locks: CUPTI has a thread of its own */

/* The part that is the same in all versions of the record; later ones only added to its end. */
typedef CUpti_ActivityMemory2 memory_record;

static const char *kind_of(CUpti_ActivityMemoryKind kind)
{
    static const char *const names[] = {"other", "other",   "pinned", "device",
                                        "array", "managed", "static", "static"};
    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "other";
}

static int failed(CUptiResult result, const char *what)
{
    const char *text = NULL;
    if (result == CUPTI_SUCCESS)
        return 0;
    if (cuptiGetResultString(result, &text) != CUPTI_SUCCESS || text == NULL)
        text = "unknown";
    fprintf(out, "error %s: %s\n", what, text);
    fflush(out);
    return 1;
}

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size_bytes, size_t *record_limit)
{
    *buffer = malloc(BUFFER_BYTES); /* aligned for any record */
    *size_bytes = *buffer != NULL ? BUFFER_BYTES : 0;
    *record_limit = 0; /* as many as fit */
}

static void CUPTIAPI consume_buffer(CUcontext context, uint32_t stream, uint8_t *buffer,
                                    size_t size_bytes, size_t valid_bytes)
{
    CUpti_Activity *record = NULL;
    (void)context, (void)stream, (void)size_bytes;
    while (cuptiActivityGetNextRecord(buffer, valid_bytes, &record) == CUPTI_SUCCESS) {
        const memory_record *memory = (const memory_record *)(const void *)record;
        if (record->kind != CUPTI_ACTIVITY_KIND_MEMORY2)
            continue;
        int is_new = memory->memoryOperationType == CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION;
        fprintf(out, "%s %s %" PRIu64 " %" PRIu64 "\n", is_new ? "alloc" : "release",
                kind_of(memory->memoryKind), memory->bytes, memory->timestamp);
    }
    free(buffer);
}

static void CUPTIAPI on_call(void *user, CUpti_CallbackDomain domain, CUpti_CallbackId id,
                             const void *data)
{
    const CUpti_CallbackData *call = data;
    uint64_t now = 0;
    (void)user, (void)domain, (void)id;
    if (call->callbackSite == CUPTI_API_ENTER && !failed(cuptiGetTimestamp(&now), "time"))
        fprintf(out, "launch %" PRIu64 "\n", now);
}

static void finish(void)
{
    size_t dropped = 0;
    if (!failed(cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED), "flush") &&
        !failed(cuptiActivityGetNumDroppedRecords(NULL, 0, &dropped), "dropped records"))
        fprintf(out, "end %zu\n", dropped);
    fclose(out);
}

/* Called by CUDA when the program first uses it; what it returns is not looked at. */
int InitializeInjection(void);
int InitializeInjection(void)
{
    const char *path = getenv("ULLAGE_ACTIVITY");
    CUpti_SubscriberHandle subscriber;
    const CUpti_CallbackDomain api = CUPTI_CB_DOMAIN_RUNTIME_API;
    out = path != NULL ? fopen(path, "w") : NULL;
    if (out == NULL)
        return 1;
    if (!failed(cuptiSubscribe(&subscriber, on_call, NULL), "subscribe") &&
        !failed(cuptiEnableCallback(1, subscriber, api,
                                    CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000),
                "callback") &&
        !failed(cuptiActivityRegisterCallbacks(give_buffer, consume_buffer), "buffers") &&
        !failed(cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMORY2), "memory activity"))
        atexit(finish);
    return 1;
}
