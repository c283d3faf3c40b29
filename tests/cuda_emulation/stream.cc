/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events and graphs: what is enqueued is kept until somebody waits for it.
 *
 *     stream a: kernel, record e, kernel          waiting for b runs b's queue and, of a's, what
 *     stream b: wait e, copy                      stands before e; the rest of a stays
 *
 * So a program that forgets to wait for a stream sees what was there before. With an order other
 * than 0, other streams go on by chance too, and the nodes of a graph run in any order that their
 * dependencies allow. A captured node depends on what comes before it in its stream, and on what
 * comes before the events that the stream waited for.
 *
 * Left out: the legacy stream (NULL) runs at once and lets everything else finish first;
 * page-locked and other host memory differ in one thing alone: a copy from other memory reads it at
 * once.
 */
#include "emulate.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <pthread.h>
#include <set>
#include <string>
#include <time.h>

namespace
{

enum op_kind { OP_KERNEL, OP_COPY, OP_FILL, OP_CALL, OP_RECORD, OP_WAIT, OP_GRAPH };

struct node;
typedef std::vector<struct node> nodes;

struct op {
    enum op_kind kind;
    std::string name;
    struct ul_emulate_kernel kernel;      /* OP_KERNEL */
    std::vector<unsigned char> arguments; /* OP_KERNEL, OP_CALL */
    void (*run)(const void *arguments);   /* OP_CALL */
    void *to;                             /* OP_COPY, OP_FILL */
    const void *from;
    int value;
    size_t size_bytes;
    cudaEvent_t event;                  /* OP_RECORD, OP_WAIT */
    uint64_t number;                    /* of the record */
    uint32_t step;                      /* of the plan, of what is enqueued by it */
    std::shared_ptr<const nodes> graph; /* OP_GRAPH */
};

struct node {
    struct op op;
    std::vector<size_t> after;
};

} // namespace

/* The handle by which programs know a node. */
struct CUgraphNode_st {
    cudaGraph_t graph;
    size_t index; /* index among the nodes of the graph */
};

struct CUgraph_st {
    nodes all;
    std::deque<struct CUgraphNode_st> handles;
    std::vector<cudaGraphNode_t> tail; /* the dependences that cudaStreamGetCaptureInfo gave last */
    uint64_t number;                   /* number that no other graph ever has */
    cudaStream_t origin;
    enum cudaStreamCaptureMode mode;
    pthread_t thread; /* that began it */
    bool spoiled;
};

struct CUgraphExec_st {
    std::shared_ptr<const nodes> all;
    uint64_t number; /* number of the graph that it was made from */
    uint64_t taken_bytes;
};

struct CUstream_st {
    std::deque<struct op> queue;
    cudaGraph_t capture; /* NULL: none */
    std::vector<size_t> tail;
    bool non_blocking;
    bool waits; /* for another one: nothing of its queue may run */
};

struct CUevent_st {
    uint64_t issued, done; /* records */
    cudaStream_t stream;   /* of the last one */
    struct timespec when;
    cudaGraph_t capture; /* the last record was captured */
    std::vector<size_t> tail;
};

namespace
{

std::vector<cudaStream_t> streams; /* in order of creation */
std::set<cudaEvent_t> events;
std::vector<cudaGraph_t> captures;               /* captures that have not ended */
std::set<const struct CUgraphNode_st *> handles; /* handles of graphs that exist */
uint64_t chance_state = 1;

bool by_chance()
{
    chance_state = chance_state * 6364136223846793005u + settings_get().order;
    return (chance_state >> 40 & 1) != 0;
}

bool is_stream(cudaStream_t stream)
{
    return std::find(streams.begin(), streams.end(), stream) != streams.end();
}

bool is_legacy(cudaStream_t stream)
{
    return stream == NULL || stream == cudaStreamLegacy || stream == cudaStreamPerThread;
}

/* ---- doing it ---- */

void run_graph(const nodes &all);

void run_op(const struct op &op)
{
    const char *fail = settings_get().fail;
    switch (op.kind) {
    case OP_KERNEL:
        log_line("run %s", op.name.c_str());
        if (fail != NULL && *fail != '\0' && op.name.find(fail) != std::string::npos) {
            device_fail(cudaErrorLaunchFailure);
            break;
        }
        count_begin(op.step, op.name.c_str());
        kernel_run(op.kernel, op.arguments.data());
        count_end();
        break;
    case OP_COPY:
        log_line("run copy %zu", op.size_bytes);
        count_copy(op.step, op.from, op.to, op.size_bytes);
        memmove(op.to, op.from, op.size_bytes);
        break;
    case OP_FILL:
        memset(op.to, op.value, op.size_bytes);
        break;
    case OP_CALL:
        op.run(op.arguments.data());
        break;
    case OP_RECORD:
        op.event->done = op.number;
        clock_gettime(CLOCK_MONOTONIC, &op.event->when);
        break;
    case OP_GRAPH:
        run_graph(*op.graph);
        break;
    case OP_WAIT:
        break;
    }
}

/* In order, or in a random one that dependencies allow. */
void run_graph(const nodes &all)
{
    if (settings_get().order == 0) {
        for (const struct node &node : all)
            run_op(node.op);
        return;
    }
    std::vector<size_t> missing(all.size()), ready;
    std::vector<std::vector<size_t>> next(all.size());
    for (size_t i = 0; i < all.size(); i++) {
        missing[i] = all[i].after.size();
        for (size_t before : all[i].after)
            next[before].push_back(i);
        if (missing[i] == 0)
            ready.push_back(i);
    }
    while (!ready.empty()) {
        if (by_chance())
            std::swap(ready.front(), ready.back());
        size_t i = ready.back();
        ready.pop_back();
        run_op(all[i].op);
        for (size_t after : next[i])
            if (--missing[after] == 0)
                ready.push_back(after);
    }
}

/* Runs the stream's queue until it is empty, or until `event` has its record `number`. */
void run_stream(cudaStream_t stream, cudaEvent_t event, uint64_t number)
{
    while (!stream->queue.empty() && (event == NULL || event->done < number)) {
        struct op op = std::move(stream->queue.front());
        stream->queue.pop_front();
        if (op.kind == OP_WAIT && op.event->done < op.number) {
            if (op.event->stream->waits)
                ul_emulate_fail("streams that wait for each other");
            stream->waits = true;
            run_stream(op.event->stream, op.event, op.number);
            stream->waits = false;
        }
        run_op(op);
        if (settings_get().order != 0 && by_chance())
            for (cudaStream_t other : streams)
                if (other != stream && !other->waits && !other->queue.empty() && by_chance() &&
                    other->queue.front().kind != OP_WAIT) {
                    struct op more = std::move(other->queue.front());
                    other->queue.pop_front();
                    run_op(more);
                }
    }
}

cudaError_t finish_stream(cudaStream_t stream, cudaEvent_t event, uint64_t number)
{
    struct api api;
    device_open();
    run_stream(stream, event, number);
    device_close();
    return api.usable();
}

/* ---- enqueuing it ---- */

void spoil(cudaGraph_t capture)
{
    if (capture != NULL)
        capture->spoiled = true;
}

/* Does it mind what this thread does, by its mode? */
bool minds(cudaGraph_t capture)
{
    bool is_own = pthread_equal(capture->thread, pthread_self()) != 0;
    return capture->mode == cudaStreamCaptureModeGlobal ||
           (capture->mode == cudaStreamCaptureModeThreadLocal && is_own);
}

cudaError_t enqueue(cudaStream_t stream, struct op &&op)
{
    op.step = count_step();
    if (is_legacy(stream)) {
        struct api api;
        cudaError_t error = capture_forbids();
        if (error != cudaSuccess)
            return error;
        streams_finish();
        device_open();
        run_op(op);
        device_close();
        return api.usable();
    }
    if (!is_stream(stream))
        return cudaErrorInvalidResourceHandle;
    if (stream->capture == NULL) {
        stream->queue.push_back(std::move(op));
        return cudaSuccess;
    }
    if (stream->capture->spoiled)
        return cudaErrorStreamCaptureInvalidated;
    nodes &all = stream->capture->all;
    stream->capture->handles.push_back({stream->capture, all.size()});
    handles.insert(&stream->capture->handles.back());
    all.push_back({std::move(op), stream->tail});
    stream->tail.assign(1, all.size() - 1);
    return cudaSuccess;
}

/* Ranges that a copy may have, by the direction that is said. */
cudaError_t check_copy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind)
{
    int to_type = memory_type_of(to, count), from_type = memory_type_of(from, count);
    if (to_type < 0 || from_type < 0)
        return cudaErrorInvalidValue;
    bool to_device = to_type == (int)cudaMemoryTypeDevice;
    bool from_device = from_type == (int)cudaMemoryTypeDevice;
    bool fits =
        kind == cudaMemcpyDefault ||
        (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
         from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
    if (!fits)
        return cudaErrorInvalidValue;
    const unsigned char *a = (const unsigned char *)to, *b = (const unsigned char *)from;
    if (count != 0 && a < b + count && b < a + count)
        ul_emulate_fail("a copy of %zu bytes from %p to %p overlaps itself", count, from, to);
    return cudaSuccess;
}

void need_stream(cudaStream_t stream)
{
    if (!is_legacy(stream) && !is_stream(stream))
        ul_emulate_fail("a stream that was destroyed, or never made: %p", (void *)stream);
}

void need_event(cudaEvent_t event)
{
    if (events.count(event) == 0)
        ul_emulate_fail("an event that was destroyed, or never made: %p", (void *)event);
}

} // namespace

void streams_finish()
{
    device_open();
    for (size_t i = 0; i < streams.size(); i++)
        run_stream(streams[i], NULL, 0);
    device_close();
}

cudaError_t capture_forbids()
{
    cudaError_t error = cudaSuccess;
    for (cudaGraph_t capture : captures) {
        if (!minds(capture))
            continue;
        spoil(capture);
        error = cudaErrorStreamCaptureUnsupported;
    }
    return error;
}

/* ---- launches ---- */

cudaError_t ul_emulate_launch(const struct ul_emulate_kernel *kernel, const void *arguments,
                              size_t size_bytes, cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && settings_get().major < 8)
        error = cudaErrorNoKernelImageForDevice;
    if (error == cudaSuccess && (kernel->threads == 0 || kernel->threads > 1024 ||
                                 kernel->blocks == 0 || kernel->blocks > 2147483647))
        error = cudaErrorInvalidConfiguration;
    const uint64_t resident =
        blocks_resident(kernel->function, kernel->threads, kernel->rest_bytes);
    if (error == cudaSuccess && kernel->rest_bytes != 0 && resident == 0)
        error = cudaErrorInvalidValue;
    cudaGraph_t capture = is_stream(stream) ? stream->capture : NULL;
    if (error == cudaSuccess && kernel->is_together &&
        kernel->blocks > resident * (uint64_t)(capture != NULL ? settings_get().capture_part
                                                               : settings_get().part))
        error = cudaErrorCooperativeLaunchTooLarge;
    if (error == cudaErrorCooperativeLaunchTooLarge)
        spoil(capture);
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    static bool is_loaded = false;
    if (!is_loaded)
        ul_emulate_take((long)settings_get().code_bytes);
    is_loaded = true;
    struct op op = {};
    op.kind = OP_KERNEL;
    op.name = kernel->name;
    op.kernel = *kernel;
    op.arguments.assign((const unsigned char *)arguments,
                        (const unsigned char *)arguments + size_bytes);
    return result(enqueue(stream, std::move(op)));
}

cudaError_t ul_emulate_enqueue(cudaStream_t stream, const char *name, void (*run)(const void *),
                               const void *arguments, size_t size_bytes)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    struct op op = {};
    op.kind = OP_CALL;
    op.name = name;
    op.run = run;
    op.arguments.assign((const unsigned char *)arguments,
                        (const unsigned char *)arguments + size_bytes);
    return result(enqueue(stream, std::move(op)));
}

extern "C" {

/* ---- copies ---- */

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t count, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && count != 0)
        error = check_copy(to, from, count, kind);
    if (error != cudaSuccess || count == 0)
        return result(error);
    need_stream(stream);
    bool at_once = !is_legacy(stream) && stream->capture == NULL &&
                   memory_type_of(from, count) == (int)cudaMemoryTypeUnregistered;
    struct op op = {};
    op.kind = OP_COPY;
    op.to = to;
    op.from = from;
    op.size_bytes = count;
    error = enqueue(stream, std::move(op));
    return result(error == cudaSuccess && at_once ? finish_stream(stream, NULL, 0) : error);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t count, enum cudaMemcpyKind kind)
{
    return cudaMemcpyAsync(to, from, count, kind, NULL);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t count, cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error == cudaSuccess && memory_type_of(to, count) != (int)cudaMemoryTypeDevice)
        error = cudaErrorInvalidValue;
    if (error != cudaSuccess || count == 0)
        return result(error);
    need_stream(stream);
    struct op op = {};
    op.kind = OP_FILL;
    op.to = to;
    op.value = value;
    op.size_bytes = count;
    return result(enqueue(stream, std::move(op)));
}

cudaError_t cudaMemset(void *to, int value, size_t count)
{
    return cudaMemsetAsync(to, value, count, NULL);
}

/* ---- streams ---- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags)
{
    struct api api;
    *stream = NULL;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    *stream = new CUstream_st();
    (*stream)->non_blocking = (flags & cudaStreamNonBlocking) != 0;
    streams.push_back(*stream);
    log_line("new stream");
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int)
{
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    struct api api;
    if (is_legacy(stream) || !is_stream(stream))
        return result(cudaErrorInvalidResourceHandle);
    (void)finish_stream(stream, NULL, 0);
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    delete stream;
    log_line("end stream");
    return result(api.usable());
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    if (is_legacy(stream))
        return cudaDeviceSynchronize();
    if (stream->capture != NULL) {
        spoil(stream->capture);
        return result(cudaErrorStreamCaptureUnsupported);
    }
    return result(finish_stream(stream, NULL, 0));
}

cudaError_t cudaDeviceSynchronize(void)
{
    struct api api;
    cudaError_t error = api.usable();
    for (cudaGraph_t capture : captures) {
        spoil(capture);
        error = error == cudaSuccess ? cudaErrorStreamCaptureUnsupported : error;
    }
    if (error != cudaSuccess)
        return result(error);
    streams_finish();
    return result(api.usable());
}

cudaError_t cudaDeviceReset(void)
{
    return cudaDeviceSynchronize();
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    struct api api;
    need_stream(stream);
    if (is_legacy(stream) || stream->queue.empty())
        return result(api.usable());
    return cudaErrorNotReady;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned)
{
    struct api api;
    *event = NULL;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    *event = new CUevent_st();
    events.insert(*event);
    log_line("new event");
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    struct api api;
    need_event(event);
    if (event->done < event->issued && is_stream(event->stream))
        (void)finish_stream(event->stream, event, event->issued);
    events.erase(event);
    delete event;
    log_line("end event");
    return result(api.usable());
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_event(event);
    need_stream(stream);
    if (!is_legacy(stream) && stream->capture != NULL) {
        event->capture = stream->capture;
        event->tail = stream->tail;
        return cudaSuccess;
    }
    event->capture = NULL;
    event->stream = stream;
    struct op op = {};
    op.kind = OP_RECORD;
    op.event = event;
    op.number = ++event->issued;
    return result(enqueue(stream, std::move(op)));
}

static cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event)
{
    if (stream->capture != NULL && stream->capture != event->capture)
        return cudaErrorStreamCaptureMerge;
    if (stream->capture == NULL)
        stream->tail.clear();
    stream->capture = event->capture;
    for (size_t node : event->tail)
        if (std::find(stream->tail.begin(), stream->tail.end(), node) == stream->tail.end())
            stream->tail.push_back(node);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_event(event);
    need_stream(stream);
    if (event->capture != NULL && !is_legacy(stream))
        return result(wait_captured(stream, event));
    if (!is_legacy(stream) && stream->capture != NULL) {
        spoil(stream->capture);
        return result(cudaErrorStreamCaptureIsolation);
    }
    if (event->done == event->issued)
        return cudaSuccess;
    struct op op = {};
    op.kind = OP_WAIT;
    op.event = event;
    op.number = event->issued;
    return result(enqueue(stream, std::move(op)));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_event(event);
    if (event->capture != NULL) {
        spoil(event->capture);
        return result(cudaErrorStreamCaptureUnsupported);
    }
    if (event->done < event->issued)
        error = finish_stream(event->stream, event, event->issued);
    return result(error);
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    struct api api;
    need_event(event);
    return event->done < event->issued ? cudaErrorNotReady : result(api.usable());
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    struct api api;
    need_event(begin);
    need_event(end);
    if (begin->issued == 0 || end->issued == 0)
        return result(cudaErrorInvalidResourceHandle);
    if (begin->done < begin->issued || end->done < end->issued)
        return cudaErrorNotReady;
    *milliseconds = (float)(end->when.tv_sec - begin->when.tv_sec) * 1e3f +
                    (float)(end->when.tv_nsec - begin->when.tv_nsec) * 1e-6f;
    return cudaSuccess;
}

/* ---- capture ---- */

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    if (is_legacy(stream) || stream->capture != NULL)
        return result(is_legacy(stream) ? cudaErrorStreamCaptureUnsupported
                                        : cudaErrorIllegalState);
    static uint64_t number;
    stream->capture = new CUgraph_st();
    stream->capture->number = ++number;
    stream->capture->origin = stream;
    stream->capture->mode = mode;
    stream->capture->thread = pthread_self();
    captures.push_back(stream->capture);
    stream->tail.clear();
    return cudaSuccess;
}

/* Is every node before one of the origin's last ones? */
static bool is_joined(const CUgraph_st &graph)
{
    std::vector<bool> seen(graph.all.size());
    std::vector<size_t> open = graph.origin->tail;
    while (!open.empty()) {
        size_t node = open.back();
        open.pop_back();
        if (seen[node])
            continue;
        seen[node] = true;
        open.insert(open.end(), graph.all[node].after.begin(), graph.all[node].after.end());
    }
    return std::find(seen.begin(), seen.end(), false) == seen.end();
}

static void end_graph(cudaGraph_t graph)
{
    for (const struct CUgraphNode_st &handle : graph->handles)
        handles.erase(&handle);
    delete graph;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph)
{
    struct api api;
    *graph = NULL;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    if (is_legacy(stream) || stream->capture == NULL)
        return result(cudaErrorIllegalState);
    if (stream->capture->origin != stream)
        return result(cudaErrorStreamCaptureUnmatched);
    cudaGraph_t made = stream->capture;
    if (made->spoiled)
        error = cudaErrorStreamCaptureInvalidated;
    else if (!is_joined(*made))
        error = cudaErrorStreamCaptureUnjoined;
    for (cudaStream_t other : streams)
        if (other->capture == made)
            other->capture = NULL;
    for (cudaEvent_t event : events)
        if (event->capture == made)
            event->capture = NULL;
    captures.erase(std::find(captures.begin(), captures.end(), made));
    log_line("capture %zu nodes", made->all.size());
    if (error == cudaSuccess)
        *graph = made;
    else
        end_graph(made);
    return result(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
    struct api api;
    need_stream(stream);
    *status = cudaStreamCaptureStatusNone;
    if (!is_legacy(stream) && stream->capture != NULL)
        *status = stream->capture->spoiled ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
    return result(api.usable());
}

/* Gives the nodes that the next node would depend on. An edge from them is plain until a launch
 * says that it is programmatic. */
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus *status,
                                     unsigned long long *id, cudaGraph_t *graph,
                                     const cudaGraphNode_t **dependencies,
                                     const cudaGraphEdgeData **edges, size_t *count)
{
    struct api api;
    cudaError_t error = cudaStreamIsCapturing(stream, status);
    if (error != cudaSuccess || *status != cudaStreamCaptureStatusActive)
        return error;
    cudaGraph_t made = stream->capture;
    static std::vector<cudaGraphEdgeData> plain;
    made->tail.clear();
    for (size_t node : stream->tail)
        made->tail.push_back(&made->handles[node]);
    plain.assign(made->tail.size(), cudaGraphEdgeData());
    if (id != NULL)
        *id = made->number;
    if (graph != NULL)
        *graph = made;
    if (dependencies != NULL)
        *dependencies = made->tail.data();
    if (edges != NULL)
        *edges = plain.data();
    if (count != NULL)
        *count = made->tail.size();
    return cudaSuccess;
}

/* ---- graphs ---- */

static void take(cudaGraphExec_t exec)
{
    const uint64_t bytes = settings_get().graph_bytes;
    exec->taken_bytes += bytes;
    if (bytes > 0)
        ul_emulate_take((long)bytes);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long)
{
    struct api api;
    *exec = NULL;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    log_line("instantiate");
    *exec = new CUgraphExec_st();
    (*exec)->all = std::make_shared<const nodes>(graph->all);
    (*exec)->number = graph->number;
    take(*exec);
    return cudaSuccess;
}

/* What an update may change: what a kernel is given, from where and to where is copied; not which
 * nodes there are. On a device two kernels of one kind may have different functions, but not here:
 * the same steps launch the same kernels. */
static bool is_same_node(const struct node &a, const struct node &b)
{
    return a.op.kind == b.op.kind && a.op.name == b.op.name && a.after == b.after &&
           a.op.kernel.body == b.op.kernel.body && a.op.kernel.overlaps == b.op.kernel.overlaps &&
           a.op.run == b.op.run && a.op.size_bytes == b.op.size_bytes &&
           a.op.arguments.size() == b.op.arguments.size();
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph,
                                cudaGraphExecUpdateResultInfo *info)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    bool same = exec->all->size() == graph->all.size() && !settings_get().no_update;
    for (size_t i = 0; same && i < graph->all.size(); i++)
        same = is_same_node((*exec->all)[i], graph->all[i]);
    *info = {same ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateErrorTopologyChanged, NULL,
             NULL};
    log_line(same ? "graph_update" : "refused graph_update");
    if (!same)
        return result(cudaErrorGraphExecUpdateFailure);
    exec->all = std::make_shared<const nodes>(graph->all); /* launches before it keep theirs */
    take(exec);
    return cudaSuccess;
}

/* Checks that the kernel of the node may be launched with these parameters. A device also lets a
 * node change its kernel, as an update may; this does not. */
static cudaError_t check_params(const struct op &op, const struct cudaKernelNodeParams &params)
{
    const uint64_t threads = params.blockDim.x;
    if (op.kind != OP_KERNEL || params.func != op.kernel.function || params.kernelParams == NULL ||
        params.extra != NULL || params.gridDim.y != 1 || params.gridDim.z != 1 ||
        params.blockDim.y != 1 || params.blockDim.z != 1)
        return cudaErrorInvalidValue;
    if (threads == 0 || threads > 1024 || params.gridDim.x == 0 || params.gridDim.x > 2147483647)
        return cudaErrorInvalidConfiguration;
    const uint64_t resident = blocks_resident(params.func, threads, params.sharedMemBytes);
    if (params.sharedMemBytes != 0 && resident == 0)
        return cudaErrorInvalidValue;
    return op.kernel.is_together && params.gridDim.x > resident * (uint64_t)settings_get().part
               ? cudaErrorCooperativeLaunchTooLarge
               : cudaSuccess;
}

/* Launches before this call keep their parameters, and the graph that the executable one was made
 * from does not change. That graph must exist, and the node must be one of its nodes, as an update
 * leaves it. */
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t node,
                                             const struct cudaKernelNodeParams *params)
{
    struct api api;
    cudaError_t error = api.usable();
    if (handles.count(node) == 0)
        ul_emulate_fail("a node of a graph that was destroyed, or never made: %p", (void *)node);
    if (error == cudaSuccess && (node->graph->number != exec->number || settings_get().no_params))
        error = cudaErrorInvalidValue;
    if (error == cudaSuccess)
        error = check_params((*exec->all)[node->index].op, *params);
    if (error != cudaSuccess)
        return result(error);
    std::shared_ptr<nodes> changed = std::make_shared<nodes>(*exec->all);
    struct op &op = (*changed)[node->index].op;
    op.kernel.blocks = params->gridDim.x;
    op.kernel.threads = params->blockDim.x;
    op.kernel.rest_bytes = params->sharedMemBytes;
    op.kernel.give(params->kernelParams, op.arguments.data(), &op.kernel);
    exec->all = changed;
    log_line("set_params %s", op.name.c_str());
    return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *, size_t *count)
{
    *count = graph->all.size();
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    struct api api;
    end_graph(graph);
    return result(api.usable());
}

cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t stream)
{
    struct api api;
    need_stream(stream);
    return result(api.usable());
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    struct api api;
    cudaError_t error = api.usable();
    if (error != cudaSuccess)
        return result(error);
    need_stream(stream);
    struct op op = {};
    op.kind = OP_GRAPH;
    op.graph = exec->all;
    log_line("graph_launch");
    activity_launch();
    return result(enqueue(stream, std::move(op)));
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    struct api api;
    if (exec->taken_bytes > 0)
        ul_emulate_take(-(long)exec->taken_bytes);
    delete exec;
    log_line("end graph");
    return result(api.usable());
}

} // extern "C"
