/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gradient of attention of the emulated cuDNN, spelled out as the library's engines know it:
 *
 *      sums = (sum of g o) * 1, in memory; scores = q k, scaled, masked; less norms; where causal,
 *      keys after the query are -infinity; weights = exp(scores); dv = turned(weights) g; slopes =
 *      (g v - sums) weights, scaled; dk = turned(slopes) q; dq = slopes turned(k)
 *
 * in this order of operations, what lies between being virtual; what is turned has the type of the
 * operands. Without sums in memory there is no engine, as in the library.
 *
 * Engines: one that is not deterministic; one that takes its workspace to be zeroed; one whose
 * slopes lie in its workspace, as the library's do; and, on devices of compute capability 10 alone,
 * one without a workspace, which no heuristic offers. The size of a head is a multiple of 8.
 */
#include "attention.h"

#include <stdlib.h>
#include <unistd.h>

namespace
{

struct job {
    struct tensor q, k, v, g, o, norms, sums, dq, dk, dv, masks[MAX_MASKS];
    struct tensor scale, one, never;
    int64_t mask_count;
    bool is_causal;
    float scale_value;
    const void *q_bytes, *k_bytes, *v_bytes, *g_bytes, *o_bytes, *norms_bytes;
    const void *mask_bytes[MAX_MASKS];
    void *sums_bytes, *dq_bytes, *dk_bytes, *dv_bytes, *workspace;
    size_t workspace_bytes;
    bool counts;
};

enum { COUNTING = 1, SLOPES = 2, NAMED = 5, NAMED_CONFIG = 31 };

const std::vector<struct engine> engines = {
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {},
     0,
     false,
     false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {},
     0,
     false,
     false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {CUDNN_KNOB_TYPE_STAGES},
     2,
     false,
     false},
    {{}, {}, {}, 0, false, true},
    {{}, {}, {}, 0, false, true},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION},
     {CUDNN_KNOB_TYPE_KERNEL_CFG, CUDNN_KNOB_TYPE_STAGES},
     NAMED_CONFIG,
     false,
     true}};

/* ---- running ---- */

/* The gradients of head `h` of batch `b`. */
struct head {
    const struct job &job;
    int64_t b, h;
    std::vector<float> keys, values; /* their gradients, [key][element] */

    float get(const struct tensor &tensor, const void *bytes, int64_t i, int64_t j) const
    {
        return element_get(bytes, tensor.type, at(tensor, b, h, i, j));
    }
    float product(const struct tensor &x, const void *x_bytes, int64_t i, const struct tensor &y,
                  const void *y_bytes, int64_t t) const
    {
        float sum = 0;
        for (int64_t d = 0; d < x.dims[3]; d++)
            sum += get(x, x_bytes, i, d) * get(y, y_bytes, d, t);
        return sum;
    }
};

float weight_of(const struct head &head, int64_t i, int64_t t)
{
    const struct job &job = head.job;
    if (job.is_causal && t > i)
        return 0;
    float score = head.product(job.q, job.q_bytes, i, job.k, job.k_bytes, t) * job.scale_value;
    for (int64_t m = 0; m < job.mask_count; m++)
        score += head.get(job.masks[m], job.mask_bytes[m], i, t);
    return expf(score - head.get(job.norms, job.norms_bytes, i, 0));
}

void run_query(struct head *head, int64_t i)
{
    const struct job &job = head->job;
    int64_t size = job.q.dims[3], value_size = job.g.dims[3];
    std::vector<float> queries((size_t)size);
    float sum = 0;
    for (int64_t d = 0; d < value_size; d++)
        sum += head->get(job.g, job.g_bytes, i, d) * head->get(job.o, job.o_bytes, i, d);
    element_put(job.sums_bytes, job.sums.type, at(job.sums, head->b, head->h, i, 0), sum);
    for (int64_t t = 0; t < job.k.dims[3]; t++) {
        float weight = weight_of(*head, i, t);
        float slope = head->product(job.g, job.g_bytes, i, job.v, job.v_bytes, t);
        slope = rounded(job.q.type, (slope - sum) * weight * job.scale_value);
        weight = rounded(job.q.type, weight);
        for (int64_t d = 0; d < size; d++) {
            queries[(size_t)d] += slope * head->get(job.k, job.k_bytes, d, t);
            head->keys[(size_t)(t * size + d)] += slope * head->get(job.q, job.q_bytes, i, d);
        }
        for (int64_t d = 0; d < value_size; d++)
            head->values[(size_t)(t * value_size + d)] +=
                weight * head->get(job.g, job.g_bytes, i, d);
    }
    for (int64_t d = 0; d < size; d++)
        element_put(job.dq_bytes, job.dq.type, at(job.dq, head->b, head->h, i, d),
                    queries[(size_t)d]);
}

void run_head(const struct job &job, int64_t b, int64_t h, int64_t first)
{
    int64_t keys = job.k.dims[3], size = job.q.dims[3], value_size = job.g.dims[3];
    struct head head = {job, b, h, std::vector<float>((size_t)(keys * size)),
                        std::vector<float>((size_t)(keys * value_size))};
    for (int64_t i = first; i < job.q.dims[2]; i++)
        run_query(&head, i);
    for (int64_t t = 0; t < keys; t++) {
        for (int64_t d = 0; d < size; d++)
            element_put(job.dk_bytes, job.dk.type, at(job.dk, b, h, t, d),
                        head.keys[(size_t)(t * size + d)]);
        for (int64_t d = 0; d < value_size; d++)
            element_put(job.dv_bytes, job.dv.type, at(job.dv, b, h, t, d),
                        head.values[(size_t)(t * value_size + d)]);
    }
}

void run_job(const void *arguments)
{
    const struct job &job = *(const struct job *)arguments;
    const char *slow = getenv("UL_EMULATE_SLOW_CUDNN");
    if (slow != NULL)
        (void)usleep((useconds_t)(1000 * atoi(slow)));
    /* Its counter says that these queries are done. */
    int64_t done = job.counts && *(const uint32_t *)job.workspace != 0 ? 1 : 0;
    if (job.workspace_bytes > 0 && !job.counts)
        memset(job.workspace, 0xA5, job.workspace_bytes);
    for (int64_t b = 0; b < job.q.dims[0]; b++) {
        for (int64_t h = 0; h < job.q.dims[1]; h++)
            run_head(job, b, h, done);
    }
}

/* ---- problems ---- */

struct gradient : problem {
    struct job job;
    bool serves(size_t engine, size_t *workspace_bytes) const override;
    bool enqueue(const struct run &run, cudaStream_t stream) const override;
};

bool is_named_device()
{
    struct cudaDeviceProp properties;
    return cudaGetDeviceProperties(&properties, 0) == cudaSuccess && properties.major == 10;
}

bool gradient::serves(size_t engine, size_t *workspace_bytes) const
{
    enum { QUERIES = 64, KEYS = 128, FIXED_BYTES = 256 };
    size_t rows = (size_t)(job.q.dims[2] + QUERIES - 1) / QUERIES * QUERIES;
    size_t columns = (size_t)(job.k.dims[3] + KEYS - 1) / KEYS * KEYS;
    *workspace_bytes = 2 * (size_t)(job.q.dims[0] * job.q.dims[1]) * rows * columns + FIXED_BYTES;
    if (engine == NAMED)
        *workspace_bytes = 0;
    bool is_there = engine <= SLOPES || (engine == NAMED && is_named_device());
    return is_there && job.q.dims[3] % 8 == 0 && job.g.dims[3] % 8 == 0;
}

bool gradient::enqueue(const struct run &run, cudaStream_t stream) const
{
    struct job ready = job;
    std::vector<struct extent> operands;
    if (run.engine == engines->data())
        ul_emulate_fail("cuDNN: the engine of attention's gradient does not keep bits");
    ready.q_bytes = place_operand(run, &operands, "queries", job.q);
    ready.k_bytes = place_operand(run, &operands, "keys", job.k);
    ready.v_bytes = place_operand(run, &operands, "values", job.v);
    ready.g_bytes = place_operand(run, &operands, "the result's gradient", job.g);
    ready.o_bytes = place_operand(run, &operands, "the result", job.o);
    ready.norms_bytes = place_operand(run, &operands, "norms", job.norms);
    for (int64_t m = 0; m < job.mask_count; m++)
        ready.mask_bytes[m] = place_operand(run, &operands, "a mask", job.masks[m]);
    ready.dq_bytes = run.places.at(job.dq.uid);
    ready.dk_bytes = run.places.at(job.dk.uid);
    ready.dv_bytes = run.places.at(job.dv.uid);
    ready.sums_bytes = run.places.at(job.sums.uid);
    ready.workspace = run.workspace;
    ready.workspace_bytes = run.workspace_bytes;
    ready.counts = run.engine == engines->data() + COUNTING;
    ready.scale_value = *(const float *)run.places.at(job.scale.uid);
    if (*(const float *)run.places.at(job.one.uid) != 1 ||
        (job.is_causal && *(const float *)run.places.at(job.never.uid) != -INFINITY))
        return false;
    const struct extent workspace = {"the workspace", ready.workspace, ready.workspace_bytes};
    need_memory("cuDNN", operands, {"", NULL, 0},
                {"queries' gradient", ready.dq_bytes, graph_reach(job.dq)}, workspace);
    operands.push_back({"queries' gradient", ready.dq_bytes, graph_reach(job.dq)});
    operands.push_back(workspace);
    const struct extent results[] = {{"keys' gradient", ready.dk_bytes, graph_reach(job.dk)},
                                     {"values' gradient", ready.dv_bytes, graph_reach(job.dv)},
                                     {"sums", ready.sums_bytes, graph_reach(job.sums)}};
    for (const struct extent &result : results)
        need_result(&operands, result);
    return ul_emulate_enqueue(stream, "cuDNN's gradient of attention", run_job, &ready,
                              sizeof ready) == cudaSuccess;
}

/* ---- graphs ---- */

/* What is turned around, in another type. */
struct tensor take_turn(struct reader *reader, const struct tensor &x, enum element type)
{
    struct tensor y;
    memset(&y, 0, sizeof y);
    const struct descriptor *operation = take(reader, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    if (operation == NULL)
        return y;
    y = read(reader, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC);
    bool is_same = y.dims[0] == x.dims[0] && y.dims[1] == x.dims[1] && y.dims[2] == x.dims[3] &&
                   y.dims[3] == x.dims[2] && y.strides[2] == x.strides[3] &&
                   y.strides[3] == x.strides[2];
    reader->good = reader->good &&
                   read(reader, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC).uid == x.uid &&
                   is_same && y.is_virtual && y.type == type;
    return y;
}

void read_sums(struct reader *reader, struct job *job)
{
    struct pointwise product = take_pointwise(reader, CUDNN_POINTWISE_MUL, 2);
    struct tensor sum = take_reduction(reader, CUDNN_REDUCE_TENSOR_ADD, product.y);
    struct pointwise scaled =
        take_pointwise(reader, CUDNN_POINTWISE_MUL, 2, CUDNN_DATA_FLOAT, true);
    job->g = product.x;
    job->o = product.b;
    job->one = scaled.b;
    job->sums = scaled.y;
    reader->good = reader->good && scaled.x.uid == sum.uid && scaled.b.is_by_value &&
                   !scaled.y.is_virtual && scaled.y.data_type == CUDNN_DATA_FLOAT;
}

struct tensor read_weights(struct reader *reader, struct job *job)
{
    struct product first = take_product(reader);
    job->q = first.a;
    job->k = first.b;
    struct tensor scores = take_scaled(reader, first.c, &job->scale, job->masks, &job->mask_count);
    struct pointwise below = take_pointwise(reader, CUDNN_POINTWISE_SUB, 2);
    job->norms = below.b;
    reader->good = reader->good && below.x.uid == scores.uid && !below.b.is_virtual &&
                   below.b.data_type == CUDNN_DATA_FLOAT && below.b.dims[3] == 1;
    scores = below.y;
    job->is_causal = take_causal(reader, &scores, &job->never);
    struct pointwise weights = take_pointwise(reader, CUDNN_POINTWISE_EXP, 1);
    reader->good = reader->good && weights.x.uid == scores.uid;
    return weights.y;
}

struct tensor read_slopes(struct reader *reader, const struct tensor &weights, struct job *job)
{
    struct product product = take_product(reader);
    struct pointwise apart = take_pointwise(reader, CUDNN_POINTWISE_SUB, 2);
    struct pointwise weighted = take_pointwise(reader, CUDNN_POINTWISE_MUL, 2);
    struct pointwise scaled = take_pointwise(reader, CUDNN_POINTWISE_MUL, 2);
    job->v = product.b;
    reader->good = reader->good && product.a.uid == job->g.uid && product.c.is_virtual &&
                   apart.x.uid == product.c.uid && apart.b.uid == job->sums.uid &&
                   weighted.x.uid == apart.y.uid && weighted.b.uid == weights.uid &&
                   scaled.x.uid == weighted.y.uid && scaled.b.uid == job->scale.uid;
    return scaled.y;
}

bool read_gradient(struct reader *reader, struct job *job)
{
    read_sums(reader, job);
    struct tensor weights = read_weights(reader, job);
    enum element type = job->q.type;
    struct tensor turned = take_turn(reader, weights, type);
    struct product values = take_product(reader);
    reader->good = reader->good && values.a.uid == turned.uid && values.b.uid == job->g.uid;
    struct tensor slopes = read_slopes(reader, weights, job);
    turned = take_turn(reader, slopes, type);
    struct product keys = take_product(reader);
    reader->good = reader->good && keys.a.uid == turned.uid && keys.b.uid == job->q.uid;
    turned = take_turn(reader, job->k, type);
    struct product queries = take_product(reader);
    reader->good = reader->good && queries.a.uid == slopes.uid && queries.b.uid == turned.uid;
    job->dv = values.c;
    job->dk = keys.c;
    job->dq = queries.c;
    const struct tensor *const halves[] = {&job->q, &job->v,  &job->g,  &job->o,
                                           &job->k, &job->dq, &job->dk, &job->dv};
    bool good = reader->good && reader->next == reader->operations.size();
    for (const struct tensor *tensor : halves) {
        bool is_turned = tensor == &job->k || tensor == &job->v;
        good = good && is_half(*tensor, job->q) && tensor->strides[is_turned ? 2 : 3] == 1;
    }
    return good;
}

} // namespace

struct problem *graph_attention_gradient(const std::vector<const struct descriptor *> &operations)
{
    struct gradient *made = new struct gradient();
    struct job *job = &made->job;
    struct reader reader = {operations, 0, true};
    memset(job, 0, sizeof *job);
    if (!read_gradient(&reader, job)) {
        delete made;
        return NULL;
    }
    made->engines = &engines;
    made->tensors = {job->q,    job->k,  job->v,  job->g,  job->o,     job->norms,
                     job->sums, job->dq, job->dk, job->dv, job->scale, job->one};
    for (int64_t m = 0; m < job->mask_count; m++)
        made->tensors.push_back(job->masks[m]);
    if (job->is_causal)
        made->tensors.push_back(job->never);
    return made;
}
