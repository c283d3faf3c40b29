/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of CUPTI that tests/gpu/activity.c uses: who allocates what, and when graphs are
 * launched. For C and C++. A library that CUDA_INJECTION64_PATH names is loaded as CUDA does it.
 */
#ifndef CUPTI_H
#define CUPTI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUPTIAPI

typedef struct CUctx_st *CUcontext;

typedef enum {
    CUPTI_SUCCESS = 0,
    CUPTI_ERROR_INVALID_PARAMETER = 1,
    CUPTI_ERROR_MAX_LIMIT_REACHED = 12,
    CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED = 39
} CUptiResult;

CUptiResult cuptiGetResultString(CUptiResult result, const char **text);
CUptiResult cuptiGetTimestamp(uint64_t *timestamp);

/* ---- callbacks ---- */

typedef enum { CUPTI_CB_DOMAIN_RUNTIME_API = 2 } CUpti_CallbackDomain;
typedef enum { CUPTI_API_ENTER = 0, CUPTI_API_EXIT = 1 } CUpti_ApiCallbackSite;
enum { CUPTI_RUNTIME_TRACE_CBID_cudaGraphLaunch_v10000 = 311 };

typedef uint32_t CUpti_CallbackId;
typedef struct CUpti_Subscriber_st *CUpti_SubscriberHandle;

typedef struct {
    CUpti_ApiCallbackSite callbackSite;
    const char *functionName;
} CUpti_CallbackData;

typedef void(CUPTIAPI *CUpti_CallbackFunc)(void *user, CUpti_CallbackDomain domain,
                                           CUpti_CallbackId id, const void *data);

CUptiResult cuptiSubscribe(CUpti_SubscriberHandle *subscriber, CUpti_CallbackFunc callback,
                           void *user);
CUptiResult cuptiEnableCallback(uint32_t enable, CUpti_SubscriberHandle subscriber,
                                CUpti_CallbackDomain domain, CUpti_CallbackId id);

/* ---- activity ---- */

typedef enum { CUPTI_ACTIVITY_KIND_MEMORY2 = 49 } CUpti_ActivityKind;
typedef enum {
    CUPTI_ACTIVITY_MEMORY_KIND_UNKNOWN = 0,
    CUPTI_ACTIVITY_MEMORY_KIND_PINNED = 2,
    CUPTI_ACTIVITY_MEMORY_KIND_DEVICE = 3
} CUpti_ActivityMemoryKind;
typedef enum {
    CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION = 1,
    CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE = 2
} CUpti_ActivityMemoryOperationType;
enum { CUPTI_ACTIVITY_FLAG_FLUSH_FORCED = 1 };

typedef struct {
    CUpti_ActivityKind kind;
} CUpti_Activity;

typedef struct {
    CUpti_ActivityKind kind;
    CUpti_ActivityMemoryOperationType memoryOperationType;
    CUpti_ActivityMemoryKind memoryKind;
    uint32_t correlationId;
    uint64_t address;
    uint64_t bytes;
    uint64_t timestamp;
} CUpti_ActivityMemory2;

typedef void(CUPTIAPI *CUpti_BuffersCallbackRequestFunc)(uint8_t **buffer, size_t *size,
                                                         size_t *maxNumRecords);
typedef void(CUPTIAPI *CUpti_BuffersCallbackCompleteFunc)(CUcontext context, uint32_t streamId,
                                                          uint8_t *buffer, size_t size,
                                                          size_t validSize);

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind);
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete);
/* *record is the one before, NULL for the first. */
CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t validSize, CUpti_Activity **record);
CUptiResult cuptiActivityFlushAll(uint32_t flag);
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t streamId,
                                              size_t *dropped);

#ifdef __cplusplus
}
#endif

#endif
