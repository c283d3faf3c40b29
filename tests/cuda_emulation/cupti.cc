/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CUPTI, as far as include/cupti.h: records of memory are kept until they are asked for, and come
 * as many as fit into a buffer at a time. As CUDA does, the emulation loads the library that
 * CUDA_INJECTION64_PATH names when the program first calls it.
 *
 * Invariants: one subscriber, one set of callbacks of buffers. What libraries take for their
 * handles counts as allocated by them.
 */
#include "emulate.h"

#include "cupti.h"

#include <dlfcn.h>
#include <string.h>
#include <time.h>

namespace
{

struct CUpti {
    CUpti_CallbackFunc on_call;
    void *user;
    bool launches; /* are told */
    CUpti_BuffersCallbackRequestFunc request;
    CUpti_BuffersCallbackCompleteFunc complete;
    bool memory; /* is recorded */
    std::vector<CUpti_ActivityMemory2> records;
    size_t dropped;
};

/* Never destroyed: what was loaded flushes when the program ends. */
struct CUpti &cupti()
{
    static struct CUpti &only = *new struct CUpti();
    return only;
}

uint64_t now()
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

} // namespace

/* ---- what the emulation tells ---- */

void activity_start()
{
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path != NULL ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    if (library == NULL)
        return;
    int (*initialize)(void) = (int (*)(void))dlsym(library, "InitializeInjection");
    if (initialize != NULL)
        (void)initialize();
}

void activity_memory(bool is_new, bool is_pinned, const void *address, size_t size_bytes)
{
    CUpti_ActivityMemory2 record = {};
    if (!cupti().memory)
        return;
    record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
    record.memoryOperationType = is_new ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION
                                        : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
    record.memoryKind =
        is_pinned ? CUPTI_ACTIVITY_MEMORY_KIND_PINNED : CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
    record.address = (uint64_t)(uintptr_t)address;
    record.bytes = size_bytes;
    record.timestamp = now();
    cupti().records.push_back(record);
}

void activity_launch()
{
    CUpti_CallbackData data = {CUPTI_API_ENTER, "cudaGraphLaunch"};
    if (!cupti().launches)
        return;
    for (CUpti_ApiCallbackSite site : {CUPTI_API_ENTER, CUPTI_API_EXIT}) {
        data.callbackSite = site;
        cupti().on_call(cupti().user, CUPTI_CB_DOMAIN_RUNTIME_API,
                        CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000, &data);
    }
}

/* ---- what is asked ---- */

extern "C" {

CUptiResult cuptiGetResultString(CUptiResult result, const char **text)
{
    *text = result == CUPTI_SUCCESS ? "CUPTI_SUCCESS" : "CUPTI_ERROR";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetTimestamp(uint64_t *timestamp)
{
    *timestamp = now();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                           void *user)
{
    if (cupti().on_call != NULL || settings_get().no_cupti)
        return CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED;
    cupti().on_call = callback;
    cupti().user = user;
    *subscriber = (CUpti_SubscriberHandle)&cupti();
    return CUPTI_SUCCESS;
}

CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id)
{
    if ((struct CUpti *)subscriber != &cupti() || domain != CUPTI_CB_DOMAIN_RUNTIME_API ||
        id != CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cupti().launches = enable != 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete)
{
    if (request == NULL || complete == NULL)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cupti().request = request;
    cupti().complete = complete;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind)
{
    if (kind != CUPTI_ACTIVITY_KIND_MEMORY2 || cupti().request == NULL)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cupti().memory = true;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t validSize, CUpti_Activity **record)
{
    uint8_t *next = *record == NULL ? buffer : (uint8_t *)*record + sizeof(CUpti_ActivityMemory2);
    if (next + sizeof(CUpti_ActivityMemory2) > buffer + validSize)
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    *record = (CUpti_Activity *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t)
{
    std::vector<CUpti_ActivityMemory2> records = std::move(cupti().records);
    cupti().records.clear();
    for (size_t done = 0, count; done < records.size(); done += count) {
        uint8_t *buffer = NULL;
        size_t size = 0, limit = 0;
        cupti().request(&buffer, &size, &limit);
        count = size / sizeof records[0];
        count = limit != 0 && limit < count ? limit : count;
        count = records.size() - done < count ? records.size() - done : count;
        if (buffer == NULL || count == 0) {
            cupti().dropped += records.size() - done;
            break;
        }
        memcpy(buffer, &records[done], count * sizeof records[0]);
        cupti().complete(NULL, 0, buffer, size, count * sizeof records[0]);
    }
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, uint32_t, size_t *dropped)
{
    *dropped = cupti().dropped;
    cupti().dropped = 0;
    return CUPTI_SUCCESS;
}

} // extern "C"
