/* SPDX-License-Identifier: 0BSD */
/*
 * Checkpoints: one .npz with every parameter and the optimizer's state under their names, and
 *     step           int64: updates that are done
 *     learning_rate  float64: before schedules
 *     generator      uint64 [4]: the seed; 1 where samples are shuffled, plus 2 where the last
 *                    batch is filled; how many samples there are; how many an update takes: what
 *                    their order follows from. No samples: who handed them over, batch by batch,
 *                    did not say of how many
 *     optimizer      uint8 [16]: its name, then zeros: what the state is of
 *     lora_alpha     float64: where there are factors (--lora), what over their rank they count
 *     quantize       uint8 [256]: where they are beside weights of few bits, what --quantize says
 *                    of these, an option a line, then zeros
 *     order_step     int64: the step in the order of samples, where it is not `step`, since batches
 *                    or samples were others before
 * All entries of a file are checked against the model before one is used.
 */
#include "ul_train_internal.h"

#include "ul_small_float.h"

#include <float.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GENERATOR_COUNT = 4, OPTIMIZER_BYTES = 16, SHUFFLES = 1, PADS = 2, PIECE_BYTES = 4096 };

static const int64_t generator_dims[] = {GENERATOR_COUNT};
static const int64_t optimizer_dims[] = {OPTIMIZER_BYTES};
static const int64_t quantize_dims[] = {UL_RT_QUANTIZE_BYTES};

/* What a checkpoint has besides the parameters. */
struct extras {
    int64_t step;
    double learning_rate;
    uint64_t generator[GENERATOR_COUNT];
    char optimizer[OPTIMIZER_BYTES];
    double lora_alpha; /* after what all checkpoints have */
    char quantize[UL_RT_QUANTIZE_BYTES];
    int64_t order_step;
};

enum { LORA_ALPHA = 4, QUANTIZE, ORDER_STEP, EXTRA_COUNT };

static uint32_t extra_count(const struct ul_rt_training *training)
{
    return training->lora_alpha <= 0    ? LORA_ALPHA
           : training->quantize == NULL ? QUANTIZE
                                        : ORDER_STEP;
}

static void describe_extras(struct extras *extras, struct ul_npz_member members[EXTRA_COUNT])
{
    const struct ul_rt_tensor tensors[EXTRA_COUNT] = {
        {.name = "step", .type = UL_TYPE_I64, .size_bytes = sizeof extras->step},
        {.name = "learning_rate", .type = UL_TYPE_F64, .size_bytes = sizeof extras->learning_rate},
        {.name = "generator",
         .type = UL_TYPE_U64,
         .rank = 1,
         .dims = generator_dims,
         .size_bytes = sizeof extras->generator},
        {.name = "optimizer",
         .type = UL_TYPE_U8,
         .rank = 1,
         .dims = optimizer_dims,
         .size_bytes = sizeof extras->optimizer},
        {.name = "lora_alpha", .type = UL_TYPE_F64, .size_bytes = sizeof extras->lora_alpha},
        {.name = "quantize",
         .type = UL_TYPE_U8,
         .rank = 1,
         .dims = quantize_dims,
         .size_bytes = sizeof extras->quantize},
        {.name = "order_step", .type = UL_TYPE_I64, .size_bytes = sizeof extras->order_step}};
    const void *const places[EXTRA_COUNT] = {
        &extras->step,       &extras->learning_rate, extras->generator,  extras->optimizer,
        &extras->lora_alpha, extras->quantize,       &extras->order_step};
    for (uint32_t i = 0; i < EXTRA_COUNT; i++) {
        memset(&members[i], 0, sizeof members[i]);
        members[i].tensor = tensors[i];
        members[i].data = places[i];
    }
}

static struct extras get_extras(const struct ul_training_run *run)
{
    struct extras extras = {.step = (int64_t)run->trainer.step,
                            .learning_rate = run->trainer.learning_rate,
                            .generator = {run->trainer.seed,
                                          (run->shuffles ? SHUFFLES : 0u) | (run->pads ? PADS : 0u),
                                          run->data.sample_count, run->batch_samples},
                            .lora_alpha = run->training->lora_alpha,
                            .order_step = (int64_t)ul_train_order_step(run)};
    snprintf(extras.optimizer, sizeof extras.optimizer, "%s", run->training->optimizer);
    if (run->training->quantize != NULL)
        snprintf(extras.quantize, sizeof extras.quantize, "%s", run->training->quantize);
    return extras;
}

static bool is_extra(const char *name)
{
    return strcmp(name, "step") == 0 || strcmp(name, "learning_rate") == 0 ||
           strcmp(name, "generator") == 0 || strcmp(name, "optimizer") == 0 ||
           strcmp(name, "lora_alpha") == 0 || strcmp(name, "quantize") == 0 ||
           strcmp(name, "order_step") == 0;
}

int ul_checkpoint_check(const struct ul_training_run *run)
{
    for (uint32_t i = 0; i < run->training->parameter_count; i++)
        if (is_extra(run->training->parameters[i].name))
            return ul_error(run->session, UL_EXIT_UNSUPPORTED,
                            "a parameter is called '%s', as what a checkpoint has beside "
                            "parameters: rename it in the model",
                            run->training->parameters[i].name);
    return UL_EXIT_OK;
}

/* It is in bf16, where the file has float32. */
static bool is_rounded(const struct ul_rt_parameter *parameter)
{
    return parameter->storage != parameter->type;
}

/* Whether it is in memory of this process, in the file's format. */
static bool lies_plain(const struct ul_session *s, const struct ul_rt_parameter *parameter)
{
    return s->model->device == NULL && parameter->space == UL_SPACE_ARENA &&
           !is_rounded(parameter) && (parameter->facts & UL_RT_PARAMETER_CHANNELS_LAST) == 0;
}

/* The tensor as the file has it. */
static struct ul_rt_tensor tensor_of(const struct ul_rt_parameter *parameter)
{
    uint64_t times = is_rounded(parameter) ? sizeof(float) / sizeof(uint16_t) : 1;
    const struct ul_rt_tensor tensor = {.name = parameter->name,
                                        .type = parameter->type,
                                        .rank = parameter->rank,
                                        .dims = parameter->dims,
                                        .size_bytes = parameter->size_bytes * times};
    return tensor;
}

/* ---- writing ---- */

/* To read or write a parameter that is on a device, is offloaded, is bf16 or has channels
 * innermost. */
struct place {
    const struct ul_session *session;
    const struct ul_rt_parameter *parameter;
};

/* Moves bytes between a parameter, from `at` on, and `bytes`. */
static int move_bytes(const struct ul_session *s, enum ul_direction direction,
                      const struct ul_rt_parameter *parameter, uint64_t at, void *bytes,
                      uint64_t size_bytes)
{
    struct ul_failure failure;
    void *place = s->model->device != NULL ? (void *)s->context : (void *)s->arena;
    enum ul_result result =
        ul_train_move(s->model, place, direction, parameter, at, bytes, size_bytes, &failure);
    if (result == UL_OFFLOAD_FAILED)
        return ul_store_report(s);
    return result == UL_OK ? UL_EXIT_OK : ul_report_failure(s, NULL, &failure);
}

/* bf16 is widened, by way of the second half of `target`. */
static int read_place(void *context, uint64_t offset_bytes, void *target, uint64_t size_bytes)
{
    const struct place *place = context;
    unsigned char *half = (unsigned char *)target + size_bytes / 2;
    if (!is_rounded(place->parameter))
        return move_bytes(place->session, UL_OFFLOAD_LOAD, place->parameter, offset_bytes, target,
                          size_bytes);
    int status = move_bytes(place->session, UL_OFFLOAD_LOAD, place->parameter, offset_bytes / 2,
                            half, size_bytes / 2);
    for (uint64_t i = 0; status == UL_EXIT_OK && i < size_bytes / sizeof(float); i++) {
        uint16_t element;
        memcpy(&element, half + i * sizeof element, sizeof element);
        float wide = ul_bf16_to_f32(element);
        memcpy((unsigned char *)target + i * sizeof wide, &wide, sizeof wide);
    }
    return status;
}

static void describe_parameters(const struct ul_training_run *run, struct place *places,
                                struct ul_npz_member *members)
{
    const struct ul_session *s = run->session;
    for (uint32_t i = 0; i < run->training->parameter_count; i++) {
        const struct ul_rt_parameter *parameter = &run->training->parameters[i];
        members[i].tensor = tensor_of(parameter);
        places[i].session = s;
        places[i].parameter = parameter;
        members[i].read = read_place;
        members[i].context = &places[i];
        if (lies_plain(s, parameter))
            members[i].data = s->arena + parameter->offset_bytes;
    }
}

static int not_finite(struct ul_training_run *run, const struct ul_rt_tensor *tensor)
{
    char shown[UL_SHOWN_BYTES], blame[UL_BLAME_BYTES];
    int status = ul_train_blame(run, blame);
    if (status != UL_EXIT_OK)
        return status;
    return ul_error(run->session, UL_EXIT_VERIFY,
                    "behind step %" PRIu64 ", '%s' is not finite%s: no checkpoint is written (%s)",
                    run->trainer.step, ul_shown(shown, tensor->name), blame,
                    blame[0] != '\0' ? "leave such samples out"
                                     : "a lower --lr, or samples of smaller numbers, may help");
}

static int check_finite(struct ul_training_run *run, const struct ul_npz_member *member)
{
    unsigned char piece[PIECE_BYTES];
    const struct ul_rt_tensor *tensor = &member->tensor;
    const struct ul_type_info *info = ul_type_find(tensor->type);
    for (uint64_t at = 0; info->kind == 'f' && at < tensor->size_bytes; at += sizeof piece) {
        uint64_t left = tensor->size_bytes - at;
        uint64_t size = left < sizeof piece ? left : sizeof piece;
        int status = UL_EXIT_OK;
        if (member->data != NULL)
            memcpy(piece, (const unsigned char *)member->data + at, (size_t)size);
        else
            status = member->read(member->context, at, piece, size);
        if (status != UL_EXIT_OK)
            return status;
        if (!ul_all_finite(tensor->type, piece, size / info->bytes))
            return not_finite(run, tensor);
    }
    return UL_EXIT_OK;
}

/* Writes to a file; or, without a path, nowhere: then the members are only examined. */
static int write_members(struct ul_training_run *run, const char *path)
{
    uint32_t count = run->training->parameter_count, extra = extra_count(run->training);
    struct extras extras = get_extras(run);
    struct ul_npz_member *members = calloc(count + EXTRA_COUNT, sizeof *members);
    struct place *places = calloc(count + 1, sizeof *places);
    int status = UL_EXIT_OK;
    if (members == NULL || places == NULL) {
        status = ul_out_of_memory(run->session, (count + EXTRA_COUNT) * sizeof *members);
    } else {
        describe_parameters(run, places, members);
        describe_extras(&extras, members + count);
        if (run->order_shift != 0)
            members[count + extra++] = members[count + ORDER_STEP];
        for (uint32_t i = 0; status == UL_EXIT_OK && i < count; i++)
            status = check_finite(run, &members[i]);
    }
    if (status == UL_EXIT_OK && path != NULL)
        status = ul_npz_write(run->session, path, members, count + extra, true);
    free(members);
    free(places);
    return status;
}

int ul_checkpoint_check_finite(struct ul_training_run *run)
{
    return write_members(run, NULL);
}

int ul_checkpoint_write(struct ul_training_run *run, const char *path)
{
    return write_members(run, path);
}

/* ---- reading ---- */

static bool is_parameter(const struct ul_rt_training *training, const char *name, size_t length)
{
    for (uint32_t i = 0; i < training->parameter_count; i++) {
        const char *parameter = training->parameters[i].name;
        if (strlen(parameter) == length && memcmp(parameter, name, length) == 0)
            return true;
    }
    return false;
}

/* Whether it is NAME/momentum, NAME/exp_avg/absmax or the like. The name of an optimizer's state
   begins with the name of a parameter and a slash; a loss scale has names of its own. */
static bool is_state(const struct ul_rt_training *training, const char *name)
{
    static const char *const scale[] = {UL_TRAIN_SCALE_NAMES};
    static const char *const kinds[] = {"momentum", "exp_avg",  "exp_avg_sq", "row_var",
                                        "col_var",  "variance", "m",          "vmean"};
    for (size_t i = 0; i < sizeof scale / sizeof *scale; i++)
        if (strcmp(name, scale[i]) == 0)
            return true;
    for (const char *slash = strchr(name, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        size_t length = strcspn(slash + 1, "/");
        for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
            if (strlen(kinds[i]) == length && memcmp(slash + 1, kinds[i], length) == 0 &&
                is_parameter(training, name, (size_t)(slash - name)))
                return true;
    }
    return false;
}

struct check {
    const struct ul_training_run *run;
    const char *path;
    bool with_state;
    bool has_alpha, has_quantize; /* of factors, and of the weights beside them */
    uint64_t counter_count;       /* of torch's BatchNorm, which nothing here reads */
};

/* NAME.num_batches_tracked of a torch state_dict. */
static bool is_counter(const char *name)
{
    static const char counter[] = "num_batches_tracked";
    size_t length = strlen(name), tail = sizeof counter - 1;
    return length >= tail && strcmp(name + length - tail, counter) == 0 &&
           (length == tail || name[length - tail - 1] == '.');
}

/* Whether the pattern, which ends at a line's end, matches the whole name: * is any text, ? a
 * letter. */
static bool matches(const char *pattern, const char *name)
{
    for (; *pattern != '\0' && *pattern != '\n'; pattern++, name++) {
        for (; *pattern == '*' && *name != '\0'; name++)
            if (matches(pattern + 1, name))
                return true;
        if (*pattern == '*')
            return matches(pattern + 1, name);
        if (*name == '\0' || (*pattern != '?' && *pattern != *name))
            return false;
    }
    return *name == '\0';
}

static bool is_frozen(const struct ul_rt_training *training, const char *name)
{
    const char *line = training->frozen;
    while (line != NULL && !matches(line, name)) {
        line = strchr(line, '\n');
        line = line != NULL ? line + 1 : NULL;
    }
    return line != NULL;
}

/* Refuses what the program was compiled with and no training changes. */
static int refuse_frozen(const struct check *check, const char *name)
{
    char file[UL_SHOWN_BYTES], shown[UL_SHOWN_BYTES];
    ul_shown(file, check->path);
    return ul_error(check->run->session, UL_EXIT_INVALID,
                    "%s: '%s' is frozen (--freeze), a constant of this program: ullage export "
                    "MODEL.onnx %s -o NEW.onnx writes it into the model, which is to be compiled "
                    "again; a checkpoint holds what is trained alone",
                    file, ul_shown(shown, name), file);
}

/* Whether the model has what the file has. */
static int check_name(void *context, const char *name)
{
    struct check *check = context;
    const struct ul_rt_training *training = check->run->training;
    char file[UL_SHOWN_BYTES], shown[UL_SHOWN_BYTES];
    check->has_alpha = check->has_alpha || strcmp(name, "lora_alpha") == 0;
    check->has_quantize = check->has_quantize || strcmp(name, "quantize") == 0;
    if (is_extra(name) || (!check->with_state && is_state(training, name)))
        return UL_EXIT_OK;
    for (uint32_t i = 0; i < training->parameter_count; i++)
        if (strcmp(training->parameters[i].name, name) == 0)
            return UL_EXIT_OK;
    if (!check->with_state && is_counter(name)) {
        check->counter_count++;
        return UL_EXIT_OK;
    }
    if (is_frozen(training, name))
        return refuse_frozen(check, name);
    return ul_error(check->run->session, UL_EXIT_INVALID,
                    is_state(training, name)
                        ? "%s: was written by a training with other options: this one has no '%s'; "
                          "to begin with its parameters use --init"
                        : "%s: is of another model: this one has no parameter '%s'",
                    ul_shown(file, check->path), ul_shown(shown, name));
}

/* Rounds elements to bf16, in place: to nearest, or, where a training goes on, to what they
 * were. */
static int round_elements(const struct ul_training_run *run, const struct ul_reader *reader,
                          const struct ul_rt_parameter *parameter, unsigned char *bytes,
                          bool is_same)
{
    char file[UL_SHOWN_BYTES], shown[UL_SHOWN_BYTES];
    for (uint64_t i = 0; i < parameter->size_bytes / sizeof(uint16_t); i++) {
        float wide;
        memcpy(&wide, bytes + i * sizeof wide, sizeof wide);
        uint16_t element = ul_f32_to_bf16(wide);
        float back = ul_bf16_to_f32(element);
        if (is_same && memcmp(&back, &wide, sizeof wide) != 0)
            return ul_error(run->session, UL_EXIT_INVALID,
                            "%s: was written by a training whose '%s' has float32, and this one "
                            "keeps bf16; to begin with its parameters use --init",
                            ul_shown(file, reader->name), ul_shown(shown, parameter->name));
        memcpy(bytes + i * sizeof element, &element, sizeof element);
    }
    return UL_EXIT_OK;
}

/* Refuses a number with which no training goes on: one that is not finite, a variance below 0, a
   loss scale that is 0 or less. */
static int check_numbers(const struct ul_training_run *run, const struct ul_reader *reader,
                         const struct ul_rt_parameter *parameter, const void *bytes)
{
    static const char *const scale[] = {UL_TRAIN_SCALE_NAMES};
    const struct ul_rt_tensor tensor = tensor_of(parameter);
    uint64_t count = ul_element_count(tensor.rank, tensor.dims);
    char file[UL_SHOWN_BYTES], shown[UL_SHOWN_BYTES];
    const char *what = NULL;
    if (ul_type_find(tensor.type)->kind == 'f' && !ul_all_finite(tensor.type, bytes, count))
        what = "a number that is not finite";
    bool is_squares = (parameter->facts & UL_RT_PARAMETER_SQUARES) != 0;
    for (uint64_t i = 0; is_squares && what == NULL && i < count; i++)
        if (ul_element_get(tensor.type, bytes, i) < 0)
            what = "a number below 0, which none of its squares is";
    if (strcmp(parameter->name, scale[0]) == 0 && !(ul_element_get(tensor.type, bytes, 0) > 0))
        what = "no loss scale: it is 0 or less";
    if (what == NULL)
        return UL_EXIT_OK;
    return ul_error(run->session, UL_EXIT_INVALID, "%s: '%s' holds %s",
                    ul_shown(file, reader->name), ul_shown(shown, parameter->name), what);
}

/* Reads one parameter to its place; by way of memory of its size where that place is not in this
   process, or has other elements. */
static int read_parameter(const struct ul_training_run *run, struct ul_reader *reader,
                          const struct ul_rt_parameter *parameter, bool with_state)
{
    const struct ul_session *s = run->session;
    const struct ul_rt_tensor tensor = tensor_of(parameter);
    if (lies_plain(s, parameter)) {
        unsigned char *place = s->arena + parameter->offset_bytes;
        int read = ul_npz_read(s, reader, parameter->name, "parameter", &tensor, place);
        return read == UL_EXIT_OK ? check_numbers(run, reader, parameter, place) : read;
    }
    unsigned char *bytes = malloc((size_t)tensor.size_bytes + 1);
    if (bytes == NULL)
        return ul_out_of_memory(s, tensor.size_bytes);
    int status = ul_npz_read(s, reader, parameter->name, "parameter", &tensor, bytes);
    if (status == UL_EXIT_OK)
        status = check_numbers(run, reader, parameter, bytes);
    if (status == UL_EXIT_OK && is_rounded(parameter))
        status = round_elements(run, reader, parameter, bytes, with_state);
    if (status == UL_EXIT_OK)
        status = move_bytes(s, UL_OFFLOAD_SAVE, parameter, 0, bytes, parameter->size_bytes);
    free(bytes);
    return status;
}

/* What factors learned must weigh as much as it did, where the file says how much that was. */
static int check_alpha(const struct ul_training_run *run, struct ul_reader *reader)
{
    char shown[UL_SHOWN_BYTES];
    struct extras extras;
    struct ul_npz_member members[EXTRA_COUNT];
    if (run->training->lora_alpha <= 0)
        return UL_EXIT_OK;
    describe_extras(&extras, members);
    int status = ul_npz_read(run->session, reader, "lora_alpha", "entry",
                             &members[LORA_ALPHA].tensor, &extras.lora_alpha);
    if (status != UL_EXIT_OK || extras.lora_alpha == run->training->lora_alpha)
        return status;
    return ul_error(run->session, UL_EXIT_INVALID,
                    "%s: was written by a training with --lora-alpha %g, this one has %g",
                    ul_shown(shown, reader->name), extras.lora_alpha, run->training->lora_alpha);
}

/* Factors are only right beside weights of the bits that they were trained with. */
static int check_quantize(const struct ul_training_run *run, struct ul_reader *reader,
                          bool is_there)
{
    const char *own = run->training->quantize;
    char shown[UL_SHOWN_BYTES], theirs[UL_SHOWN_BYTES], ours[UL_SHOWN_BYTES];
    struct extras extras;
    struct ul_npz_member members[EXTRA_COUNT];
    int status = UL_EXIT_OK;
    describe_extras(&extras, members);
    memset(extras.quantize, 0, sizeof extras.quantize);
    if (is_there)
        status = ul_npz_read(run->session, reader, "quantize", "entry", &members[QUANTIZE].tensor,
                             extras.quantize);
    extras.quantize[sizeof extras.quantize - 1] = '\0';
    own = own != NULL ? own : "";
    if (status != UL_EXIT_OK || strcmp(extras.quantize, own) == 0)
        return status;
    return ul_error(run->session, UL_EXIT_INVALID,
                    "%s: its factors were trained beside weights of --quantize '%s', and this "
                    "trainer was compiled with '%s': compile it with the same",
                    ul_shown(shown, reader->name), ul_shown(theirs, extras.quantize),
                    ul_shown(ours, own));
}

static int read_parameters(const struct ul_training_run *run, struct ul_reader *reader,
                           bool with_state)
{
    const struct ul_rt_training *training = run->training;
    struct check check = {run, reader->name, with_state, false, false, 0};
    char shown[UL_SHOWN_BYTES];
    int status = ul_npz_visit(run->session, reader, check_name, &check);
    if (status == UL_EXIT_OK && check.has_alpha)
        status = check_alpha(run, reader);
    if (status == UL_EXIT_OK && check.has_alpha)
        status = check_quantize(run, reader, check.has_quantize);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < training->parameter_count; i++)
        if (with_state || !is_state(training, training->parameters[i].name))
            status = read_parameter(run, reader, &training->parameters[i], with_state);
    if (status == UL_EXIT_OK && check.counter_count > 0)
        fprintf(stderr, "%s: %s: passed over: num_batches_tracked of %" PRIu64 " layer%s\n",
                run->session->program, ul_shown(shown, reader->name), check.counter_count,
                check.counter_count == 1 ? "" : "s");
    return status;
}

int ul_checkpoint_init(struct ul_training_run *run, const char *path)
{
    struct ul_reader reader;
    int status = ul_reader_open(run->session, &reader, path);
    if (status != UL_EXIT_OK)
        return status;
    status = read_parameters(run, &reader, false);
    ul_reader_close(&reader);
    return status;
}

/* Tells that parameters, state and the number of the step stay as they were. */
static void tell_change(const struct ul_training_run *run, const char *path, const char *what,
                        uint64_t theirs, uint64_t ours)
{
    char shown[UL_SHOWN_BYTES];
    fprintf(stderr,
            "%s: %s: was written by a training with %s %" PRIu64 ", this one has %" PRIu64 "\n",
            run->session->program, ul_shown(shown, path), what, theirs, ours);
}

/* Epochs that are done stay done, and of the epoch that is not, as many samples, down to whole
   batches; where nobody said how many there were, steps count. */
static uint64_t convert_step(const struct ul_training_run *run, const uint64_t *generator,
                             uint64_t step)
{
    uint64_t sample_count = generator[2], batch_samples = generator[3];
    if (batch_samples == 0 || sample_count < batch_samples)
        return step;
    bool is_filled = run->pads && sample_count % batch_samples != 0;
    uint64_t epoch_steps = sample_count / batch_samples + is_filled;
    uint64_t whole = step % epoch_steps * batch_samples / run->batch_samples;
    return step / epoch_steps * run->epoch_steps +
           (whole < run->epoch_steps ? whole : run->epoch_steps);
}

/* Where the samples of the next step are. */
static void find_place(struct ul_training_run *run, const char *path, const struct extras *extras)
{
    const uint64_t *generator = extras->generator;
    uint64_t step = (uint64_t)extras->step, at = (uint64_t)extras->order_step;
    bool other_samples = generator[2] != 0 && generator[2] != run->data.sample_count;
    bool other_batches = generator[3] != run->batch_samples;
    if (other_samples)
        tell_change(run, path, "a number of samples of", generator[2], run->data.sample_count);
    if (other_batches)
        tell_change(run, path, "batches of", generator[3], run->batch_samples);
    if (other_samples || other_batches) {
        at = convert_step(run, generator, at);
        fprintf(stderr,
                "%s: it goes on behind step %" PRIu64
                " with its parameters, state and rate, in epoch %" PRIu64 ", of whose %" PRIu64
                " steps %" PRIu64 " count as done\n",
                run->session->program, step, at / run->epoch_steps + 1, run->epoch_steps,
                at % run->epoch_steps);
    }
    run->order_shift = at - step;
}

/* Samples come in the order of the training that goes on. */
static int use_extras(struct ul_training_run *run, const char *path, const struct extras *extras)
{
    const struct ul_train_options *options = &run->session->options->train;
    const uint64_t *generator = extras->generator;
    char shown[UL_SHOWN_BYTES];
    if (extras->step < 0 || extras->order_step < 0 || generator[0] >= UINT64_C(1) << 53 ||
        generator[1] > (SHUFFLES | PADS) ||
        !(extras->learning_rate >= 0.0 && extras->learning_rate <= DBL_MAX))
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: 'step', 'order_step', 'learning_rate' or 'generator' holds nonsense",
                        ul_shown(shown, path));
    bool has_order = generator[2] != 0;
    if (has_order && ((generator[1] & PADS) != 0) != run->pads)
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: was written by a training with --last %s; give it here too",
                        ul_shown(shown, path), run->pads ? "drop" : "pad");
    if (has_order && options->in_order && (generator[1] & SHUFFLES) != 0)
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: was written by a training that shuffles its samples: leave "
                        "--no-shuffle out",
                        ul_shown(shown, path));
    if (options->seed != UINT64_MAX && options->seed != generator[0])
        return ul_error(run->session, UL_EXIT_INVALID,
                        "%s: was written by a training with the seed %" PRIu64
                        ", this one has %" PRIu64 "; to begin with its parameters use --init",
                        ul_shown(shown, path), generator[0], options->seed);
    find_place(run, path, extras);
    run->trainer.step = (uint64_t)extras->step;
    run->trainer.seed = generator[0];
    if (has_order)
        run->shuffles = (generator[1] & SHUFFLES) != 0;
    if (options->learning_rate < 0.0)
        run->trainer.learning_rate = extras->learning_rate;
    return UL_EXIT_OK;
}

/* The state of one optimizer is no start for another, even where names and shapes are the same. */
static int check_optimizer(const struct ul_training_run *run, const char *path,
                           const struct extras *extras)
{
    char shown[UL_SHOWN_BYTES], theirs[UL_SHOWN_BYTES], name[OPTIMIZER_BYTES + 1] = {0};
    memcpy(name, extras->optimizer, sizeof extras->optimizer);
    if (strcmp(name, run->training->optimizer) == 0)
        return UL_EXIT_OK;
    return ul_error(run->session, UL_EXIT_INVALID,
                    "%s: was written by a training with optimizer %s, this one has %s; to begin "
                    "with its parameters use --init",
                    ul_shown(shown, path), ul_shown(theirs, name), run->training->optimizer);
}

static int find_order(void *context, const char *name)
{
    bool *has_order = context;
    *has_order = *has_order || strcmp(name, "order_step") == 0;
    return UL_EXIT_OK;
}

static int read_extras(const struct ul_training_run *run, struct ul_reader *reader,
                       struct extras *extras)
{
    struct ul_npz_member members[EXTRA_COUNT];
    void *const places[EXTRA_COUNT] = {&extras->step,     &extras->learning_rate, extras->generator,
                                       extras->optimizer, &extras->lora_alpha,    extras->quantize};
    bool has_order = false;
    describe_extras(extras, members);
    int status = ul_npz_visit(run->session, reader, find_order, &has_order);
    for (uint32_t i = 0; status == UL_EXIT_OK && i < extra_count(run->training); i++)
        status = ul_npz_read(run->session, reader, members[i].tensor.name, "entry",
                             &members[i].tensor, places[i]);
    extras->order_step = extras->step;
    if (status == UL_EXIT_OK && has_order)
        status = ul_npz_read(run->session, reader, "order_step", "entry",
                             &members[ORDER_STEP].tensor, &extras->order_step);
    return status;
}

int ul_checkpoint_resume(struct ul_training_run *run, const char *path)
{
    struct ul_reader reader;
    struct extras extras;
    int status = ul_reader_open(run->session, &reader, path);
    if (status != UL_EXIT_OK)
        return status;
    status = read_extras(run, &reader, &extras);
    if (status == UL_EXIT_OK)
        status = check_optimizer(run, path, &extras);
    if (status == UL_EXIT_OK)
        status = read_parameters(run, &reader, true);
    if (status == UL_EXIT_OK)
        status = use_extras(run, path, &extras);
    ul_reader_close(&reader);
    return status;
}
