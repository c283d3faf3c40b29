/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What runtime/cuda/ul_cudnn*.cu say to cuDNN, said to an installed cuDNN. No device is needed: its
 * heuristics answer, and plans are made, for devices whose properties are written here. The library
 * must take each graph, offer engines that keep what the plan promises, and make plans of them.
 * exit: 0 all was taken, 1 something was not, 77 the library is not there
 */
#include "ul_cudnn.cu"
#include "ul_cudnn_graph.cu"
#include "ul_cudnn_plan.cu"

#if UL_HAS_CUDNN

namespace
{

struct ul_call_tensor image(enum ul_call_type type, bool flat, int64_t count, int64_t channels,
                            int64_t rows, int64_t columns)
{
    struct ul_call_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.rank = flat ? 3 : 4;
    tensor.type = type;
    tensor.dims[0] = count;
    tensor.dims[1] = channels;
    tensor.dims[2] = rows;
    tensor.dims[tensor.rank - 1] = columns;
    return tensor;
}

int64_t out_size(int64_t in, int64_t pad, int64_t kernel, int64_t step, int64_t dilation)
{
    return (in + 2 * pad - (kernel - 1) * dilation - 1) / step + 1;
}

/* Number `n` of: types, one axis or two, steps, dilations, groups, ReLU, a residual, TF32; some
 * have a workspace, and some no bias. */
struct ul_call make_call(uint32_t n)
{
    enum { ROWS = 14, COLUMNS = 15, HIGH = 3, WIDE = 5, IN = 16, OUT = 32 };
    enum ul_call_type type = (enum ul_call_type)(n % 3);
    bool flat = n / 3 % 2 != 0;
    uint32_t space = flat ? 1 : 2, groups = n / 24 % 2 != 0 ? 4 : 1;
    int64_t step = 1 + n / 6 % 2, dilation = 1 + n / 12 % 2;
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_CONVOLUTION;
    call.group_count = groups;
    for (uint32_t d = 0; d < space; d++) {
        call.steps[d] = step;
        call.dilations[d] = dilation;
        call.pads[d] = call.pads[space + d] = flat || d == 1 ? 2 : 1;
    }
    call.src = image(type, flat, 2, IN, ROWS, COLUMNS);
    call.dst = image(type, flat, 2, OUT, out_size(ROWS, 1, HIGH, step, dilation),
                     out_size(COLUMNS, 2, WIDE, step, dilation));
    call.weights = image(type, flat, OUT / groups, IN / groups, HIGH, WIDE);
    if (groups > 1) {
        memmove(call.weights.dims + 1, call.weights.dims, 5 * sizeof *call.weights.dims);
        call.weights.dims[0] = groups;
        call.weights.rank++;
    }
    call.bias.rank = 1;
    call.bias.type = type;
    call.bias.dims[0] = OUT;
    if (n / 96 % 2 != 0)
        call.posts[call.post_count++].kind = UL_POST_SUM;
    if (n / 48 % 2 != 0)
        call.posts[call.post_count++].kind = UL_POST_RELU;
    if (call.post_count == 0 && n % 5 == 0)
        call.bias.rank = 0;
    call.tf32 = n / 192 % 2;
    call.scratch_bytes = n % 7 < 3 ? 1 << 20 : 0;
    return call;
}

/* The same as the gradient of its weights, or of its source. */
struct ul_call make_gradient(uint32_t n)
{
    struct ul_call call = make_call(n), made = call;
    bool of_data = n / 48 % 2 != 0, grouped = call.group_count > 1;
    uint32_t first = grouped ? 1 : 0;
    made.bias.rank = made.post_count = 0;
    if (of_data) {
        made.kind = UL_CALL_DECONVOLUTION;
        made.src = call.dst;
        made.dst = call.src;
        made.weights.dims[first] = call.weights.dims[first + 1];
        made.weights.dims[first + 1] = call.weights.dims[first];
        return made;
    }
    made.kind = UL_CALL_WEIGHT_GRADIENT;
    made.weights = call.dst;
    made.dst = call.weights;
    return made;
}

/* ---- devices ---- */

struct device {
    const char *name;
    int version, processors, shared_bytes;
};

const struct device devices[] = {{"NVIDIA A100-SXM4-80GB", 800, 108, 166912},
                                 {"NVIDIA H100 80GB HBM3", 900, 132, 232448},
                                 {"NVIDIA B200", 1000, 148, 232448},
                                 {"NVIDIA GeForce RTX 5090", 1200, 170, 101376}};

/* NULL: cuDNN does not take these properties. */
cudnnBackendDescriptor_t make_device(const struct ul_cudnn *dnn, const struct device *device)
{
    char text[1024];
    int length = snprintf(
        text, sizeof text,
        "{\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
        "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"warpSize\": 32, "
        "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, "
        "\"maxCtasPerSM\": 24, \"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": 1536, "
        "\"pciDeviceId\": 0, \"isTccDriver\": 0, \"supportCoopLaunch\": 1, "
        "\"smClockRateKHz\": 1500000, \"memClockRateKHz\": 2000000, "
        "\"l2CacheSize\": 41943040, \"cudaDeviceId\": 0, \"deviceVer\": %d, "
        "\"driverVer\": 13000, \"totalGlobalMem\": 34359738368, \"deviceName\": \"%s\"}",
        device->processors, device->shared_bytes, device->version, device->name);
    cudnnBackendDescriptor_t made = ul_cudnn_new(dnn, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    if (made != NULL &&
        ul_cudnn_set(dnn, made, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, length,
                     text) &&
        ul_cudnn_finalize(dnn, made))
        return made;
    ul_cudnn_free(dnn, made);
    return NULL;
}

/* ---- attention ---- */

/* Heads of `size` elements, of positions that follow each other `step` elements apart. */
struct ul_call_tensor heads(enum ul_call_type type, int64_t batch, int64_t count, int64_t positions,
                            int64_t size, int64_t step)
{
    struct ul_call_tensor tensor;
    memset(&tensor, 0, sizeof tensor);
    tensor.rank = 4;
    tensor.type = type;
    const int64_t dims[] = {batch, count, positions, size};
    const int64_t strides[] = {positions * step, size, step, 1};
    memcpy(tensor.dims, dims, sizeof dims);
    memcpy(tensor.strides, strides, sizeof strides);
    return tensor;
}

struct ul_call_tensor mask(enum ul_call_type type, int64_t batch, int64_t count, int64_t queries,
                           int64_t keys)
{
    struct ul_call_tensor tensor = heads(type, batch, count, queries, keys, keys);
    tensor.strides[1] = queries * keys;
    tensor.strides[0] = count * queries * keys;
    return tensor;
}

/* Number `n` of: types, sizes of heads, lengths, masks, causal, parts of one tensor, fewer heads of
 * keys, norms. */
struct ul_call make_attention(uint32_t n)
{
    enum { BATCH = 2, HEADS = 6 };
    static const int64_t sizes[] = {8, 64, 72, 128, 256};
    static const int64_t lengths[][2] = {{128, 128}, {127, 77}, {33, 257}, {1, 100}};
    enum ul_call_type type = n % 2 == 0 ? UL_CALL_F16 : UL_CALL_BF16;
    int64_t size = sizes[n / 2 % 5], queries = lengths[n / 10 % 4][0],
            keys = lengths[n / 10 % 4][1];
    int64_t groups = n % 7 == 0 ? HEADS / 3 : HEADS, parts = n % 3 == 0 ? 3 : 1;
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_ATTENTION;
    call.src = heads(type, BATCH, HEADS, queries, size, parts * HEADS * size);
    call.weights = heads(type, BATCH, groups, keys, size, parts * groups * size);
    call.attention.values = call.weights;
    call.dst = heads(type, BATCH, HEADS, queries, size, HEADS * size);
    call.attention.scale = 0.125f;
    call.attention.is_causal = n / 160 % 2;
    call.attention.mask_count = n / 40 % 4 == 0 ? 0 : 1;
    enum ul_call_type of_mask = n % 11 == 0 ? UL_CALL_F32 : type;
    call.attention.masks[0] =
        mask(of_mask, n / 40 % 4 == 1 ? 1 : BATCH, n / 40 % 4 == 2 ? HEADS : 1,
             n / 40 % 4 == 3 ? 1 : queries, keys);
    if (n % 13 == 0 && call.attention.mask_count == 1) {
        call.attention.mask_count = 2;
        call.attention.masks[1] = mask(type, 1, HEADS, queries, keys);
    }
    if (n % 17 < 5) {
        call.attention.norms = heads(UL_CALL_F32, BATCH, HEADS, queries, 1, 1);
        call.attention.norms.strides[1] = queries;
        call.attention.norms.strides[0] = HEADS * queries;
    }
    call.scratch_bytes = 448;
    return call;
}

/* Number `n` of: types, sizes of heads, lengths, masks, causal, parts of one tensor. The workspace
 * is what codegen/cuda/cuda_calls.c plans. */
struct ul_call make_attention_gradient(uint32_t n)
{
    enum { BATCH = 2, HEADS = 6 };
    static const int64_t sizes[][2] = {{8, 8}, {64, 64}, {72, 40}, {128, 128}, {32, 24}};
    static const int64_t lengths[][2] = {{128, 128}, {127, 77}, {33, 257}, {512, 512}};
    enum ul_call_type type = n % 2 == 0 ? UL_CALL_F16 : UL_CALL_BF16;
    int64_t size = sizes[n / 2 % 5][0], value_size = sizes[n / 2 % 5][1];
    int64_t queries = lengths[n / 10 % 4][0], keys = lengths[n / 10 % 4][1];
    int64_t parts = n % 3 == 0 ? 3 : 1;
    struct ul_call call;
    memset(&call, 0, sizeof call);
    call.kind = UL_CALL_ATTENTION_GRADIENT;
    call.src = call.dst = heads(type, BATCH, HEADS, queries, size, parts * HEADS * size);
    call.weights = heads(type, BATCH, HEADS, keys, size, parts * HEADS * size);
    call.attention.values = heads(type, BATCH, HEADS, keys, value_size, parts * HEADS * value_size);
    call.attention.result = heads(type, BATCH, HEADS, queries, value_size, HEADS * value_size);
    call.attention.gradient = call.attention.result;
    call.attention.key_gradient = call.weights;
    call.attention.value_gradient = call.attention.values;
    call.attention.norms = heads(UL_CALL_F32, BATCH, HEADS, queries, 1, 1);
    call.attention.norms.strides[1] = queries;
    call.attention.norms.strides[0] = HEADS * queries;
    call.attention.scale = 0.125f;
    call.attention.is_causal = n / 80 % 2;
    call.attention.mask_count = n / 40 % 2;
    if (call.attention.mask_count > 0)
        call.attention.masks[0] = mask(n % 7 == 0 ? UL_CALL_F32 : type, n % 5 == 0 ? 1 : BATCH,
                                       n % 3 == 0 ? HEADS : 1, queries, keys);
    int64_t rows = (queries + 63) / 64 * 64, columns = (keys + 127) / 128 * 128;
    call.scratch_bytes = UL_CALL_WORKSPACE_LOSS + ul_call_sums_bytes(&call) +
                         UL_CALL_WORKSPACE_ALIGN + 2 * (uint64_t)(BATCH * HEADS * rows * columns);
    return call;
}

/* ---- what is checked ---- */

/* The engine that is named without the heuristic's word is there on devices that the compiler plans
 * no other workspace for. */
const char *check_named(const struct ul_cudnn *dnn, const struct device *device,
                        const struct ul_cudnn_graph *graph, const struct ul_call *call)
{
    struct ul_cudnn_choice choice;
    struct ul_cudnn_plan plan;
    struct ul_cuda_choice named[UL_CUDA_CANDIDATES];
    struct ul_call lean = *call;
    memset(&plan, 0, sizeof plan);
    lean.scratch_bytes = 0;
    bool is_read = add_named(call, named) == 1 && read_choice(&named[0], &choice);
    bool is_there = is_read && make_engine(dnn, graph, &choice, &plan) &&
                    make_config(dnn, &choice, &plan) &&
                    allows_workspace(dnn, &lean, plan.config, CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
    ul_cudnn_free(dnn, plan.config);
    for (cudnnBackendDescriptor_t knob : plan.knobs)
        ul_cudnn_free(dnn, knob);
    ul_cudnn_free(dnn, plan.engine);
    return is_there == (device->version / 100 == 10) ? NULL : "has the named engine elsewhere";
}

/* What a file of choices could say instead: none may end the program. */
void take_others(const struct ul_cudnn *dnn, struct ul_cudnn_graph *graph,
                 const struct ul_call *call, const struct ul_cuda_choice *choice)
{
    for (uint32_t i = 0; i <= choice->size_bytes; i++) {
        struct ul_cuda_choice other = *choice;
        if (i < choice->size_bytes)
            other.bytes[i] ^= 0x85;
        else
            other.size_bytes--;
        (void)ul_cudnn_take(dnn, graph, call, &other);
    }
}

/* NULL, or what is wrong. Plans of attention end on a device alone, which loads what they compile.
 */
const char *check_call(const struct ul_cudnn *dnn, const struct device *device,
                       const struct ul_call *call)
{
    struct ul_cudnn_graph graph;
    struct ul_cuda_choice found[UL_CUDA_CANDIDATES];
    const char *wrong = NULL;
    bool is_gradient = call->kind == UL_CALL_ATTENTION_GRADIENT;
    bool has_plans = call->kind != UL_CALL_ATTENTION && !is_gradient;
    memset(&graph, 0, sizeof graph);
    if (!ul_cudnn_make_graph(dnn, call, &graph))
        wrong = "does not take its graph";
    int count = wrong == NULL ? ul_cudnn_find(dnn, &graph, call, found) : 0;
    if (wrong == NULL && count == (is_gradient ? 1 : 0))
        wrong = "has no engine for it";
    if (wrong == NULL && is_gradient)
        wrong = check_named(dnn, device, &graph, call);
    for (int i = 0; wrong == NULL && has_plans && i < count; i++) {
        if (!ul_cudnn_take(dnn, &graph, call, &found[i]))
            wrong = "makes no plan of an engine that it offers";
    }
    if (wrong == NULL && has_plans)
        take_others(dnn, &graph, call, &found[0]);
    ul_cudnn_free_graph(dnn, &graph);
    return wrong;
}

struct kind {
    const char *name;
    uint32_t count;
    struct ul_call (*make)(uint32_t n);
};

int check_kind(const struct ul_cudnn *dnn, const struct device *device, const struct kind *kind)
{
    int failed = 0;
    for (uint32_t n = 0; n < kind->count; n++) {
        struct ul_call call = kind->make(n);
        const char *wrong = check_call(dnn, device, &call);
        if (wrong != NULL)
            printf("FAIL %s %u on %s: cuDNN %s\n", kind->name, n, device->name, wrong);
        failed += wrong != NULL;
    }
    return failed;
}

} // namespace

int main()
{
    static const struct kind kinds[] = {{"convolution", 384, make_call},
                                        {"gradient", 384, make_gradient},
                                        {"attention", 320, make_attention},
                                        {"attention's gradient", 160, make_attention_gradient}};
    struct handle handle;
    int failed = 0;
    /* Without the driver's library cuDNN compiles nothing, nor offers what would be. */
    void *driver = ul_cuda_load("libcuda.so.1");
    int kind_count = driver != NULL ? 4 : 2;
    memset(&handle, 0, sizeof handle);
    if (!load(&handle)) {
        printf("skipped: there is no cuDNN with all functions\n");
        return handle.loaded == NULL ? 77 : 1;
    }
    for (const struct device &device : devices) {
        handle.dnn.device = make_device(&handle.dnn, &device);
        if (handle.dnn.device == NULL) {
            printf("FAIL: cuDNN does not take the properties of %s\n", device.name);
            failed++;
        }
        for (int i = 0; i < kind_count && handle.dnn.device != NULL; i++)
            failed += check_kind(&handle.dnn, &device, &kinds[i]);
        ul_cudnn_free(&handle.dnn, handle.dnn.device);
    }
    for (int i = 0; i < kind_count; i++)
        printf("cuDNN %zu: %u of %s on %zu devices\n", handle.dnn.GetVersion(), kinds[i].count,
               kinds[i].name, sizeof devices / sizeof devices[0]);
    printf("%d failed\n", failed);
    return failed > 0;
}

#else

#include <stdio.h>

int main()
{
    printf("skipped: there is no cudnn.h\n");
    return 77;
}

#endif
