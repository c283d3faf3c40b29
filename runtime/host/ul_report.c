/* One line and an exit code for what went wrong at set-up or in a run. */
#include "ul_internal.h"

#include "ul_library.h"
#include "ul_run.h"

#include <inttypes.h>
#include <string.h>

/* What a library of a device said, of which `detail` has the words. */
static int report_device_library(const struct ul_session *s, const struct ul_failure *failure)
{
    const char *detail =
        failure->detail != NULL ? failure->detail : ul_result_text(failure->result);
    return ul_error(s, UL_EXIT_INTERNAL, "library call %" PRIu32 " failed: %s", failure->tensor,
                    detail);
}

/* What the library said of one call at set-up. */
static int report_library(const struct ul_session *s, const struct ul_failure *failure)
{
    const struct ul_library *library = s->model->library;
    uint32_t threads = ul_run_threads(s->model, s->options->threads);
    const char *name = library->calls[failure->tensor].implementation;
    if (failure->result == UL_LIBRARY_NEEDS_MORE)
        return ul_error(s, UL_EXIT_NO_FIT,
                        "call %" PRIu32 " of %s needs %" PRIu64 " bytes of scratch with %" PRIu32
                        " threads on this machine, planned are %" PRIu64 " (%s, %s, %" PRIu32
                        " threads); compile the model again for this machine",
                        failure->tensor, library->name, failure->needed_bytes, threads,
                        failure->available_bytes, name, library->isa, library->thread_count);
    if (failure->result == UL_LIBRARY_UNSUPPORTED)
        return ul_error(
            s, UL_EXIT_UNSUPPORTED,
            "call %" PRIu32 " of %s has no implementation here with %" PRIu32
            " threads for the layouts of the plan, which was made for %s with %" PRIu32
            " threads (%s); compile the model again for this machine, or with --isa or --threads",
            failure->tensor, library->name, threads, library->isa, library->thread_count, name);
    return ul_error(s, UL_EXIT_NO_FIT, "%s could not be set up: out of memory, most likely",
                    library->name);
}

/* There is none, or it cannot run the program. */
static int report_unsuitable(const struct ul_session *s, const struct ul_failure *failure)
{
    uint64_t needed = failure->needed_bytes, available = failure->available_bytes;
    if (failure->result == UL_DEVICE_TOO_OLD)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "device %" PRIu32 " has compute capability %" PRIu64 ".%" PRIu64
                        ", this program needs %" PRIu64 ".%" PRIu64
                        " or newer; choose another with --device N",
                        failure->tensor, available / 10, available % 10, needed / 10, needed % 10);
    if (failure->result == UL_DEVICE_NO_CODE)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "this program has no code for device %" PRIu32
                        " of compute capability %" PRIu64 ".%" PRIu64
                        " (%s); build it again with CUDA_ARCH=sm_%" PRIu64 " in the environment",
                        failure->tensor, available / 10, available % 10,
                        failure->detail != NULL ? failure->detail : "CUDA", available);
    if (failure->result == UL_DRIVER_TOO_OLD)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "the driver of the device is for CUDA %" PRIu64 ".%" PRIu64
                        ", this program was built with %" PRIu64 ".%" PRIu64
                        "; update the driver, or build the program with an older CUDA Toolkit",
                        available / 1000, available % 1000 / 10, needed / 1000, needed % 1000 / 10);
    if (available != 0)
        return ul_error(s, UL_EXIT_UNSUPPORTED,
                        "there is no device %" PRIu32 "; this machine has %" PRIu64
                        ", numbered from 0",
                        failure->tensor, available);
    return ul_error(s, UL_EXIT_UNSUPPORTED,
                    "no CUDA device was found (is its driver installed, and does "
                    "CUDA_VISIBLE_DEVICES name it?); this program needs a GPU of compute "
                    "capability 8.0 or newer");
}

int ul_report_failure(const struct ul_session *s, const struct ul_weights_file *file,
                      const struct ul_failure *failure)
{
    char shown[UL_SHOWN_BYTES] = "";
    const char *detail =
        failure->detail != NULL ? failure->detail : ul_result_text(failure->result);
    if (file != NULL)
        ul_shown(shown, file->path);
    switch (failure->result) {
    case UL_WEIGHTS_UNREADABLE:
        return ul_error(s, UL_EXIT_IO, "cannot read weights from %s: %s", shown,
                        file != NULL && file->error != 0 ? strerror(file->error) : "too short");
    case UL_WEIGHTS_WRONG_SIZE:
        return ul_error(s, UL_EXIT_INVALID,
                        "%s holds %" PRIu64 " bytes of weights, the model needs %" PRIu64
                        ": it is cut short or belongs to another model",
                        shown, failure->available_bytes, failure->needed_bytes);
    case UL_ARENA_TOO_SMALL:
    case UL_ARENA_MISALIGNED:
        return ul_error(s, UL_EXIT_INTERNAL, "%s (needed %" PRIu64 ", got %" PRIu64 ")",
                        ul_result_text(failure->result), failure->needed_bytes,
                        failure->available_bytes);
    case UL_LIBRARY_NEEDS_MORE:
    case UL_LIBRARY_UNSUPPORTED:
    case UL_LIBRARY_FAILED:
        return s->model->device != NULL ? report_device_library(s, failure)
                                        : report_library(s, failure);
    case UL_DEVICE_MISSING:
    case UL_DEVICE_TOO_OLD:
    case UL_DEVICE_NO_CODE:
    case UL_DRIVER_TOO_OLD:
        return report_unsuitable(s, failure);
    case UL_DEVICE_FULL:
        if (failure->available_bytes >= failure->needed_bytes)
            return ul_error(s, UL_EXIT_NO_FIT,
                            "the device does not give the %" PRIu64
                            " bytes that the model needs in one piece, though %" PRIu64
                            " are free; compile it with a --budget, or end what else uses the "
                            "device",
                            failure->needed_bytes, failure->available_bytes);
        return ul_error(s, UL_EXIT_NO_FIT,
                        "the model needs %" PRIu64 " bytes of the device's memory, and %" PRIu64
                        " are free; compile it with a --budget, or end what else uses the device",
                        failure->needed_bytes, failure->available_bytes);
    case UL_LIBRARY_MISSING:
        return ul_error(s, UL_EXIT_UNSUPPORTED, "%s", detail);
    case UL_CHOICES_INVALID:
        ul_shown(shown, s->options->choices);
        if (failure->tensor != 0)
            return ul_error(s, UL_EXIT_INVALID,
                            "--choices %s: line %" PRIu32 ": %s; make the file anew with --tune",
                            shown, failure->tensor, detail);
        return ul_error(s, UL_EXIT_INVALID, "--choices %s: %s; make the file anew with --tune",
                        shown, detail);
    case UL_CHOICES_UNWRITTEN:
        return ul_error(s, UL_EXIT_IO, "--tune %s: %s", ul_shown(shown, s->options->tune), detail);
    case UL_DEVICE_FAILED:
    case UL_ARENA_ELSEWHERE:
    case UL_INPUT_ELSEWHERE:
    case UL_OUTPUT_ELSEWHERE:
    case UL_BUFFERS_APART:
        return ul_error(s, UL_EXIT_INTERNAL, "%s: %s", ul_result_text(failure->result), detail);
    case UL_OK:
    case UL_WEIGHTS_MISSING:
    case UL_WEIGHTS_INVALID:
    case UL_WEIGHTS_WRONG_HASH:
    case UL_INPUT_MISSING:
    case UL_OUTPUT_MISSING:
    case UL_THREADS_MISSING:
    case UL_NOT_READY:
    case UL_DATA_FAULT:
        break;
    }
    return ul_error(s, UL_EXIT_INVALID, "%s: %s", shown, ul_result_text(failure->result));
}

int ul_report_fault(const struct ul_session *s, const struct ul_failure *failure)
{
    char shown[UL_SHOWN_BYTES];
    if (failure->node != NULL)
        ul_shown(shown, failure->node);
    else
        snprintf(shown, sizeof shown, "number %" PRIu32, failure->step);
    if (failure->fault == UL_FAULT_COUNT)
        return ul_error(s, UL_EXIT_INVALID,
                        "step %s met the count %" PRId64 ", planned are at most %" PRId64
                        "; it was clamped, the outputs are those of the clamped value",
                        shown, failure->fault_value, failure->fault_limit);
    return ul_error(s, UL_EXIT_INVALID,
                    "step %s met the index %" PRId64 ", valid are %" PRId64 " to %" PRId64
                    "; it was clamped, the outputs are those of the clamped index",
                    shown, failure->fault_value, -failure->fault_limit, failure->fault_limit - 1);
}
