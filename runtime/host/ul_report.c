/* SPDX-License-Identifier: 0BSD */
/* One line and an exit code for what went wrong at set-up or in a run, from rows of text. */
#include "ul_internal.h"

#include "ul_binding.h"
#include "ul_library.h"
#include "ul_run.h"

#include <inttypes.h>
#include <string.h>

/* What a row may ask of a failure. */
enum fact {
    ON_DEVICE = 1,
    NUMBERED = 2, /* `tensor` is a number */
    COUNTED = 4,  /* something is available */
    ENOUGH = 8,   /* as much is available as is needed */
    FROM_FILE = 16
};

/* The first row of a result whose facts hold is taken. UL_OK: a row of any result. Words in braces
 * are those of ul_report_failure. */
static const struct row {
    enum ul_result result;
    unsigned facts;
    int exit_code;
    const char *text;
} rows[] = {
    {UL_WEIGHTS_UNREADABLE, 0, UL_EXIT_IO, "cannot read weights from {file}: {cause}"},
    {UL_WEIGHTS_WRONG_SIZE, 0, UL_EXIT_INVALID,
     "{file} holds {available} bytes of weights, the model needs {needed}: it is cut short or "
     "belongs to another model"},
    {UL_ARENA_TOO_SMALL, 0, UL_EXIT_INTERNAL, "{result} (needed {needed}, got {available})"},
    {UL_ARENA_MISALIGNED, 0, UL_EXIT_INTERNAL, "{result} (needed {needed}, got {available})"},
    {UL_LIBRARY_NEEDS_MORE, ON_DEVICE, UL_EXIT_INTERNAL, "library call {number} failed: {detail}"},
    {UL_LIBRARY_NEEDS_MORE, 0, UL_EXIT_NO_FIT,
     "call {number} of {library} needs {needed} bytes of scratch with {threads} threads on this "
     "machine, planned are {available} ({implementation}, {isa}, {planned threads} threads); "
     "compile the model again for this machine"},
    {UL_LIBRARY_UNSUPPORTED, ON_DEVICE, UL_EXIT_INTERNAL, "library call {number} failed: {detail}"},
    {UL_LIBRARY_UNSUPPORTED, 0, UL_EXIT_UNSUPPORTED,
     "call {number} of {library} has no implementation here with {threads} threads for the "
     "layouts of the plan, which was made for {isa} with {planned threads} threads "
     "({implementation}); compile the model again for this machine, or with --isa or --threads"},
    {UL_LIBRARY_FAILED, ON_DEVICE, UL_EXIT_INTERNAL, "library call {number} failed: {detail}"},
    {UL_LIBRARY_FAILED, 0, UL_EXIT_NO_FIT,
     "{library} could not be set up: out of memory, most likely"},
    {UL_LIBRARY_MISSING, 0, UL_EXIT_UNSUPPORTED, "{detail}"},
    {UL_DEVICE_MISSING, COUNTED, UL_EXIT_UNSUPPORTED,
     "there is no device {number}; this machine has {available}, numbered from 0"},
    {UL_DEVICE_MISSING, 0, UL_EXIT_UNSUPPORTED,
     "no CUDA device was found (is its driver installed, and does CUDA_VISIBLE_DEVICES name it?); "
     "this program needs a GPU of compute capability 8.0 or newer"},
    {UL_DEVICE_TOO_OLD, 0, UL_EXIT_UNSUPPORTED,
     "device {number} has compute capability {capability}, this program needs {needed capability} "
     "or newer; choose another with --device N"},
    {UL_DEVICE_NO_CODE, 0, UL_EXIT_UNSUPPORTED,
     "this program has no code for device {number} of compute capability {capability} ({device}); "
     "build it again with CUDA_ARCH=sm_{available} in the environment"},
    {UL_DRIVER_TOO_OLD, 0, UL_EXIT_UNSUPPORTED,
     "the driver of the device is for CUDA {version}, this program was built with "
     "{needed version}; update the driver, or build the program with an older CUDA Toolkit"},
    {UL_DEVICE_FULL, ENOUGH, UL_EXIT_NO_FIT,
     "the device does not give the {needed size} that the model needs in one piece, though "
     "{available size} are free; compile it with a --budget, or end what else uses the device"},
    {UL_DEVICE_FULL, 0, UL_EXIT_NO_FIT,
     "the model needs {needed size} of the device's memory, and {available size} are free; compile "
     "it with a --budget, or end what else uses the device"},
    {UL_OFFLOAD_TOO_SMALL, ON_DEVICE, UL_EXIT_NO_FIT,
     "the host does not give {needed size} of page-locked memory, to which values are offloaded; "
     "compile it with an --offload-budget"},
    {UL_OFFLOAD_TOO_SMALL, 0, UL_EXIT_INTERNAL, "{result} (needed {needed}, got {available})"},
    {UL_OFFLOAD_FAILED, 0, UL_EXIT_IO, "{result}{: detail}"},
    {UL_CHOICES_INVALID, NUMBERED, UL_EXIT_INVALID,
     "--choices {choices}: line {number}: {detail}; make the file anew with --tune"},
    {UL_CHOICES_INVALID, 0, UL_EXIT_INVALID,
     "--choices {choices}: {detail}; make the file anew with --tune"},
    {UL_CHOICES_UNWRITTEN, 0, UL_EXIT_IO, "--tune {tune}: {detail}"},
    {UL_DEVICE_FAILED, 0, UL_EXIT_INTERNAL, "{result}{: detail}"},
    {UL_ARENA_ELSEWHERE, 0, UL_EXIT_INTERNAL, "{result}{: detail}"},
    {UL_INPUT_ELSEWHERE, 0, UL_EXIT_INTERNAL, "{result}{: detail}"},
    {UL_OUTPUT_ELSEWHERE, 0, UL_EXIT_INTERNAL, "{result}{: detail}"},
    {UL_BUFFERS_APART, 0, UL_EXIT_INTERNAL, "{result}{: detail}"},
    {UL_OK, FROM_FILE, UL_EXIT_INVALID, "{file}: {result}"},
    {UL_OK, 0, UL_EXIT_INVALID, "{result}"},
};

static const struct row *find_row(enum ul_result result, unsigned facts)
{
    const struct row *row = rows;
    while ((row->result != UL_OK && row->result != result) || (row->facts & ~facts) != 0)
        row++;
    return row;
}

enum { NUMBER_BYTES = 48, TEXT_BYTES = 2048 };

static const char *number(char text[NUMBER_BYTES], uint64_t value)
{
    snprintf(text, NUMBER_BYTES, "%" PRIu64, value);
    return text;
}

/* "13.1" for 13010, where 1000 are one and 10 is one after the point. */
static const char *version(char text[NUMBER_BYTES], uint64_t value, uint64_t whole, uint64_t small)
{
    snprintf(text, NUMBER_BYTES, "%" PRIu64 ".%" PRIu64, value / whole, value % whole / small);
    return text;
}

struct word {
    const char *name, *text;
};

/* The row's text with its words; what is too long for the place is cut. */
static void fill(char text[TEXT_BYTES], const char *form, const struct word *words)
{
    size_t used = 0;
    while (*form != '\0' && used + 1 < TEXT_BYTES) {
        size_t length = strcspn(form, "{");
        const char *part = form;
        form += length;
        if (length == 0) {
            size_t name = strcspn(form, "}");
            const struct word *word = words;
            while (strlen(word->name) + 1 != name || memcmp(word->name, form + 1, name - 1) != 0)
                word++;
            part = word->text;
            length = strlen(part);
            form += name + 1;
        }
        used += (size_t)snprintf(text + used, TEXT_BYTES - used, "%.*s", (int)length, part);
    }
}

int ul_report_failure(const struct ul_session *s, const struct ul_weights_file *file,
                      const struct ul_failure *failure)
{
    static const struct ul_library none = {.name = "", .isa = ""};
    char sizes[2][UL_SIZE_TEXT_BYTES], n[9][NUMBER_BYTES];
    char shown[3][UL_SHOWN_BYTES], after[TEXT_BYTES / 2] = "", text[TEXT_BYTES];
    const struct ul_library *of_call = ul_model_library(s->model, failure->tensor);
    const struct ul_library *library = of_call != NULL ? of_call : &none;
    const char *result = ul_result_text(failure->result);
    const char *detail = failure->detail != NULL ? failure->detail : result;
    uint64_t needed = failure->needed_bytes, available = failure->available_bytes;
    unsigned facts = (s->model->device != NULL ? ON_DEVICE : 0u) |
                     (failure->tensor != 0 ? NUMBERED : 0u) | (available != 0 ? COUNTED : 0u) |
                     (available >= needed ? ENOUGH : 0u) | (file != NULL ? FROM_FILE : 0u);
    if (failure->detail != NULL)
        snprintf(after, sizeof after, ": %s", detail);
    const struct word words[] = {
        {"result", result},
        {"detail", detail},
        {": detail", after},
        {"device", failure->detail != NULL ? failure->detail : "CUDA"},
        {"file", ul_shown(shown[0], file != NULL ? file->path : "the program")},
        {"cause", file != NULL && file->error != 0 ? strerror(file->error) : "too short"},
        {"choices", ul_shown(shown[1], s->options->choices != NULL ? s->options->choices : "")},
        {"tune", ul_shown(shown[2], s->options->tune != NULL ? s->options->tune : "")},
        {"number", number(n[0], failure->tensor)},
        {"needed", number(n[1], needed)},
        {"available", number(n[2], available)},
        {"needed size", ul_size_text(sizes[0], needed)},
        {"available size", ul_size_text(sizes[1], available)},
        {"capability", version(n[3], available, 10, 1)},
        {"needed capability", version(n[4], needed, 10, 1)},
        {"version", version(n[5], available, 1000, 10)},
        {"needed version", version(n[6], needed, 1000, 10)},
        {"library", library->name},
        {"implementation", of_call != NULL ? library->calls[failure->tensor].implementation : ""},
        {"isa", library->isa},
        {"planned threads", number(n[7], library->thread_count)},
        {"threads", number(n[8], ul_run_threads(s->model, s->options->threads))},
    };
    const struct row *row = find_row(failure->result, facts);
    fill(text, row->text, words);
    return ul_error(s, row->exit_code, "%s", text);
}

int ul_report_fault(const struct ul_session *s, const struct ul_failure *failure)
{
    char shown[UL_SHOWN_BYTES], text[TEXT_BYTES];
    if (failure->node != NULL)
        ul_shown(shown, failure->node);
    else
        snprintf(shown, sizeof shown, "number %" PRIu32, failure->step);
    ul_fault_text(text, sizeof text, failure, shown);
    return ul_error(s, UL_EXIT_INVALID, "%s", text);
}
