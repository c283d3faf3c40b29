/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions of the emulated cuDNN: y = act(conv(x, w) + residual + bias), and the gradients of x
 * and of w, of dense tensors with channels innermost, by plain loops when the stream gets there.
 *
 * Engines, the best first: one that is not deterministic; one that writes a result before it reads
 * the residual; Winograd's method with much workspace; one that rounds operands; one that sums in
 * 16 bits; one that is compiled when a plan is made; on tensor cores with a little workspace, which
 * rounds f32 to TF32, and the same without; one with none, as a fallback. Only the compiled one
 * takes operations after a convolution without a bias.
 */
#include "graph.h"

namespace
{

/* Which of x, w and y is the result. */
enum kind { FORWARD, OF_DATA, OF_WEIGHTS };

struct job {
    enum kind kind;
    struct tensor x, w, y, z, bias;
    int64_t pads[2], steps[2], dilations[2];
    bool has_residual, has_bias, has_relu, tf32, early;
    void *x_bytes, *w_bytes, *y_bytes, *workspace;
    const void *z_bytes, *bias_bytes;
    size_t workspace_bytes;
};

enum { EARLY = 1, WINOGRAD = 2, COMPILED = 5, TENSOR_CORES = 6, TABLES = 7 };

const std::vector<struct engine> engines = {
    {{CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC}, {}, {}, 0, false},
    {{}, {}, {}, 0, false},
    {{CUDNN_NUMERICAL_NOTE_WINOGRAD, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4}, {}, {}, 0, false},
    {{CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS}, {}, {}, 0, false},
    {{CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION}, {}, {}, 0, false},
    {{}, {CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION}, {}, 0, false},
    {{CUDNN_NUMERICAL_NOTE_TENSOR_CORE},
     {},
     {CUDNN_KNOB_TYPE_TILE_SIZE, CUDNN_KNOB_TYPE_STAGES},
     3,
     false},
    {{}, {}, {CUDNN_KNOB_TYPE_TILE_SIZE}, 1, false},
    {{CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP}, {}, {}, 0, true}};

/* ---- running ---- */

struct term {
    int64_t r, s, c;
};

float load(const struct job &job, const void *base, int64_t at)
{
    float x = element_get(base, job.x.type, at);
    return job.tf32 ? element_tf32(x) : x;
}

void finish(const struct job &job, int64_t at, int64_t channel, float sum)
{
    float x = sum;
    if (job.has_residual)
        x += element_get(job.z_bytes, job.z.type, at);
    if (job.has_bias)
        x += element_get(job.bias_bytes, job.bias.type, channel);
    if (job.has_relu && !(x > 0))
        x = 0;
    element_put(job.y_bytes, job.y.type, at, x);
}

/* Gives the place of the source that a tap of the window reads for a place of the result. It is -1
 * where the tap lies in the padding. */
int64_t source_at(const struct job &job, int64_t n, int64_t p, int64_t q, const struct term &term)
{
    const int64_t *x = job.x.dims;
    int64_t row = p * job.steps[0] - job.pads[0] + term.r * job.dilations[0];
    int64_t column = q * job.steps[1] - job.pads[1] + term.s * job.dilations[1];
    bool inside = row >= 0 && row < x[2] && column >= 0 && column < x[3];
    return inside ? ((n * x[2] + row) * x[3] + column) * x[1] + term.c : -1;
}

/* Gives the place of the result for which a tap of the window reads a place of the source, or -1.
 */
int64_t result_at(const struct job &job, int64_t n, int64_t h, int64_t v, const struct term &term)
{
    const int64_t *y = job.y.dims;
    int64_t row = h + job.pads[0] - term.r * job.dilations[0];
    int64_t column = v + job.pads[1] - term.s * job.dilations[1];
    if (row < 0 || column < 0 || row % job.steps[0] != 0 || column % job.steps[1] != 0)
        return -1;
    row /= job.steps[0];
    column /= job.steps[1];
    return row < y[2] && column < y[3] ? ((n * y[2] + row) * y[3] + column) * y[1] + term.c : -1;
}

int64_t weight_at(const struct job &job, int64_t filter, const struct term &term)
{
    const int64_t *w = job.w.dims;
    return ((filter * w[2] + term.r) * w[3] + term.s) * w[1] + term.c;
}

/* The taps of the window, each with the channels of a group. */
std::vector<struct term> terms_of(const struct job &job, int64_t channels)
{
    std::vector<struct term> terms;
    for (int64_t r = 0; r < job.w.dims[2]; r++) {
        for (int64_t s = 0; s < job.w.dims[3]; s++) {
            for (int64_t c = 0; c < channels; c++)
                terms.push_back({r, s, c});
        }
    }
    return terms;
}

void run_forward(const struct job &job, int64_t group, int64_t groups)
{
    const int64_t *y = job.y.dims, *w = job.w.dims;
    const std::vector<struct term> terms = terms_of(job, w[1]);
    int64_t outputs = w[0] / groups, depth = (int64_t)terms.size();
    auto weight = [&](int64_t k, int64_t l) {
        return load(job, job.w_bytes, weight_at(job, group * outputs + k, terms[(size_t)l]));
    };
    auto pixel = [&](int64_t j, float *out, int64_t stride) {
        int64_t n = j / (y[2] * y[3]), p = j / y[3] % y[2], q = j % y[3];
        for (int64_t l = 0; l < depth; l++) {
            int64_t at = source_at(job, n, p, q, terms[(size_t)l]);
            out[l * stride] = at >= 0 ? load(job, job.x_bytes, at + group * w[1]) : 0;
        }
    };
    product(outputs, y[0] * y[2] * y[3], depth, weight, pixel,
            [&](int64_t k, int64_t j, float sum) {
                int64_t channel = group * outputs + k;
                finish(job, j * y[1] + channel, channel, sum);
            });
}

void run_of_data(const struct job &job, int64_t group, int64_t groups)
{
    const int64_t *x = job.x.dims, *w = job.w.dims;
    int64_t filters = w[0] / groups;
    const std::vector<struct term> terms = terms_of(job, filters);
    int64_t depth = (int64_t)terms.size();
    auto weight = [&](int64_t c, int64_t l) {
        const struct term &term = terms[(size_t)l];
        return load(job, job.w_bytes,
                    weight_at(job, group * filters + term.c, {term.r, term.s, c}));
    };
    auto pixel = [&](int64_t j, float *out, int64_t stride) {
        int64_t n = j / (x[2] * x[3]), h = j / x[3] % x[2], v = j % x[3];
        for (int64_t l = 0; l < depth; l++) {
            int64_t at = result_at(job, n, h, v, terms[(size_t)l]);
            out[l * stride] = at >= 0 ? load(job, job.y_bytes, at + group * filters) : 0;
        }
    };
    product(w[1], x[0] * x[2] * x[3], depth, weight, pixel, [&](int64_t c, int64_t j, float sum) {
        element_put(job.x_bytes, job.x.type, j * x[1] + group * w[1] + c, sum);
    });
}

void run_of_weights(const struct job &job, int64_t group, int64_t groups)
{
    const int64_t *y = job.y.dims, *w = job.w.dims;
    const std::vector<struct term> terms = terms_of(job, w[1]);
    int64_t filters = w[0] / groups;
    auto gradient = [&](int64_t k, int64_t l) {
        return load(job, job.y_bytes, l * y[1] + group * filters + k);
    };
    auto tap = [&](int64_t j, float *out, int64_t stride) {
        for (int64_t l = 0; l < y[0] * y[2] * y[3]; l++) {
            int64_t n = l / (y[2] * y[3]), p = l / y[3] % y[2], q = l % y[3];
            int64_t at = source_at(job, n, p, q, terms[(size_t)j]);
            out[l * stride] = at >= 0 ? load(job, job.x_bytes, at + group * w[1]) : 0;
        }
    };
    product(filters, (int64_t)terms.size(), y[0] * y[2] * y[3], gradient, tap,
            [&](int64_t k, int64_t j, float sum) {
                element_put(job.w_bytes, job.w.type,
                            weight_at(job, group * filters + k, terms[(size_t)j]), sum);
            });
}

void run_job(const void *arguments)
{
    const struct job &job = *(const struct job *)arguments;
    const int64_t groups = job.x.dims[1] / job.w.dims[1];
    if (job.workspace_bytes > 0)
        memset(job.workspace, 0xA5, job.workspace_bytes);
    if (job.early)
        memset(job.y_bytes, 0, graph_reach(job.y));
    for (int64_t group = 0; group < groups; group++) {
        if (job.kind == FORWARD)
            run_forward(job, group, groups);
        else if (job.kind == OF_DATA)
            run_of_data(job, group, groups);
        else
            run_of_weights(job, group, groups);
    }
}

/* ---- problems ---- */

struct convolution : problem {
    struct job job;
    bool serves(size_t engine, size_t *workspace_bytes) const override;
    bool enqueue(const struct run &run, cudaStream_t stream) const override;
};

bool convolution::serves(size_t engine, size_t *workspace_bytes) const
{
    const int64_t *x = job.x.dims, *y = job.y.dims, *w = job.w.dims;
    bool plain = job.steps[0] == 1 && job.steps[1] == 1 && job.dilations[0] == 1 &&
                 job.dilations[1] == 1 && w[2] == 3 && w[3] == 3 && x[1] == w[1];
    *workspace_bytes = 0;
    if (engine == WINOGRAD)
        *workspace_bytes =
            (size_t)((x[1] * x[2] * x[3] + y[1] * y[2] * y[3]) * x[0] * 4 + w[0] * w[1] * 16) *
            sizeof(float);
    if (engine == TENSOR_CORES || engine == TABLES)
        *workspace_bytes = (size_t)(w[1] * w[2] * w[3]) * sizeof(int64_t);
    return (engine != WINOGRAD || plain) && (engine != EARLY || job.has_residual) &&
           (engine == COMPILED || job.has_bias || (!job.has_residual && !job.has_relu));
}

struct extent extent_of(const char *name, const struct tensor &tensor, const void *base, bool is)
{
    return {name, base, is ? graph_reach(tensor) : 0};
}

bool convolution::enqueue(const struct run &run, cudaStream_t stream) const
{
    struct job ready = job;
    size_t engine = (size_t)(run.engine - engines->data());
    auto place = [&](const struct tensor &tensor, bool is) {
        return is ? run.places.at(tensor.uid) : NULL;
    };
    ready.x_bytes = place(job.x, true);
    ready.w_bytes = place(job.w, true);
    ready.z_bytes = place(job.z, job.has_residual);
    ready.bias_bytes = place(job.bias, job.has_bias);
    ready.y_bytes = place(job.y, true);
    ready.workspace = run.workspace;
    ready.workspace_bytes = run.workspace_bytes;
    ready.tf32 = engine == TENSOR_CORES && job.x.type == ELEMENT_F32;
    ready.early = engine == EARLY;
    if (engine != WINOGRAD && engine != EARLY && engine < TENSOR_CORES)
        ul_emulate_fail("cuDNN: engine %zu does not keep bits", engine);
    struct extent x = extent_of("x", job.x, ready.x_bytes, true);
    struct extent w = extent_of("w", job.w, ready.w_bytes, true);
    struct extent y = extent_of("y", job.y, ready.y_bytes, true);
    need_memory("cuDNN",
                {job.kind == OF_DATA ? y : x, job.kind == OF_WEIGHTS ? y : w,
                 extent_of("bias", job.bias, ready.bias_bytes, job.has_bias)},
                extent_of("the residual", job.z, ready.z_bytes, job.has_residual),
                job.kind == OF_DATA      ? x
                : job.kind == OF_WEIGHTS ? w
                                         : y,
                {"the workspace", ready.workspace, ready.workspace_bytes});
    return ul_emulate_enqueue(stream, "cuDNN's convolution", run_job, &ready, sizeof ready) ==
           cudaSuccess;
}

/* ---- graphs ---- */

/* Dense, with the second axis innermost. */
bool is_image(const struct tensor &tensor)
{
    const int64_t *dims = tensor.dims, *strides = tensor.strides;
    return strides[1] == 1 && strides[3] == dims[1] && strides[2] == dims[3] * dims[1] &&
           strides[0] == dims[2] * dims[3] * dims[1];
}

int64_t out_size(int64_t in, int64_t pad, int64_t kernel, int64_t step, int64_t dilation)
{
    int64_t span = in + 2 * pad - ((kernel - 1) * dilation + 1);
    return span < 0 ? 0 : span / step + 1;
}

bool read_window(const struct descriptor *window, struct job *job)
{
    bool good = graph_word(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE) == CUDNN_DATA_FLOAT &&
                graph_word(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE) == CUDNN_CROSS_CORRELATION &&
                graph_int(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS) == 2;
    for (cudnnBackendAttributeName_t name :
         {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS,
          CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_ATTR_CONVOLUTION_DILATIONS})
        good = good && graph_count(window, name) == 2;
    for (size_t d = 0; d < 2; d++) {
        job->pads[d] = graph_int(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, d);
        job->steps[d] = graph_int(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, d);
        job->dilations[d] = graph_int(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, d);
        good = good && job->pads[d] >= 0 && job->steps[d] > 0 && job->dilations[d] > 0 &&
               job->pads[d] == graph_int(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, d);
    }
    return good;
}

/* What an operation and its gradients are called by. */
struct names {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, alpha, beta, x, w, y;
};

const struct names names[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY}};

/* A forward result is in `y` for now; a gradient is of the type of what it is made of. */
bool read_product(const struct descriptor *operation, struct job *job)
{
    for (const struct names &row : names) {
        if (row.type != graph_type(operation))
            continue;
        const struct descriptor *window = graph_one(operation, row.window);
        job->kind = (enum kind)(&row - names);
        if (graph_type(window) != CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR ||
            !read_window(window, job) || graph_float(operation, row.alpha) != 1 ||
            graph_float(operation, row.beta) != 0 ||
            !graph_tensor(graph_one(operation, row.x), &job->x) ||
            !graph_tensor(graph_one(operation, row.w), &job->w) ||
            !graph_tensor(graph_one(operation, row.y), &job->y))
            return false;
        const int64_t *x = job->x.dims, *y = job->y.dims, *w = job->w.dims;
        bool fits = x[1] % w[1] == 0 && w[0] % (x[1] / w[1]) == 0 && y[0] == x[0] && y[1] == w[0];
        for (size_t d = 0; d < 2; d++)
            fits = fits && y[2 + d] == out_size(x[2 + d], job->pads[d], w[2 + d], job->steps[d],
                                                job->dilations[d]);
        return fits && is_image(job->x) && is_image(job->w) && is_image(job->y) &&
               job->x.type == job->w.type && !job->x.is_virtual && !job->w.is_virtual &&
               (job->kind == FORWARD || (job->y.type == job->x.type && !job->y.is_virtual));
    }
    return false;
}

/* A number for each channel. */
bool is_bias(const struct tensor &tensor, const struct tensor &y)
{
    const int64_t *dims = tensor.dims;
    return dims[0] == 1 && dims[1] == y.dims[1] && dims[2] == 1 && dims[3] == 1 &&
           tensor.strides[1] == 1;
}

/* What reads the result before it: `y` becomes what it writes. */
bool read_next(const struct descriptor *operation, struct job *job)
{
    struct tensor from, to, other;
    if (graph_type(operation) != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR ||
        !graph_tensor(graph_one(operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC), &from) ||
        !graph_tensor(graph_one(operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC), &to) ||
        from.uid != job->y.uid || !from.is_virtual || from.type != ELEMENT_F32 ||
        !graph_same(from, to))
        return false;
    const struct descriptor *function =
        graph_one(operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
    int mode = graph_word(function, CUDNN_ATTR_POINTWISE_MODE);
    bool has_other = graph_has(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC);
    job->y = to;
    if (graph_word(function, CUDNN_ATTR_POINTWISE_MATH_PREC) != CUDNN_DATA_FLOAT || job->has_relu)
        return false;
    if (mode == CUDNN_POINTWISE_RELU_FWD && !has_other)
        return job->has_relu = true;
    if (mode != CUDNN_POINTWISE_ADD || !has_other ||
        !graph_tensor(graph_one(operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC), &other) ||
        other.is_virtual || other.type != job->x.type || job->has_bias)
        return false;
    if (graph_same(other, to) && !job->has_residual) {
        job->z = other;
        return job->has_residual = true;
    }
    job->bias = other;
    return job->has_bias = is_bias(other, to);
}

} // namespace

struct problem *graph_convolution(const std::vector<const struct descriptor *> &operations)
{
    struct convolution *made = new struct convolution();
    struct job *job = &made->job;
    memset(job, 0, sizeof *job);
    bool good = read_product(operations[0], job);
    for (size_t i = 1; good && i < operations.size(); i++)
        good = job->kind == FORWARD && read_next(operations[i], job);
    if (good && job->has_residual && !job->has_bias && is_bias(job->z, job->y)) {
        job->bias = job->z; /* of one place both look alike */
        job->has_bias = true;
        job->has_residual = false;
    }
    if (!good || job->y.is_virtual || job->y.type != job->x.type) {
        delete made;
        return NULL;
    }
    made->engines = &engines;
    made->tensors = {job->x, job->w, job->y};
    if (job->has_residual)
        made->tensors.push_back(job->z);
    if (job->has_bias)
        made->tensors.push_back(job->bias);
    return made;
}
