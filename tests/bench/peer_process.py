# SPDX-License-Identifier: Apache-2.0
"""A process of onnxruntime or OpenVINO, as tests/bench/latency measures it.

    peer_process.py onnxruntime|openvino import|once|serve [ORDER as JSON]

ORDER: path, inputs (an .npz), threads, sizes {symbolic dimension: size}, shapes {input: shape},
precision (f32 or bf16), results (an .npz to write; serve only). Prints JSON:
import   {"bytes"} of a process that imported the package and numpy, and nothing else
once     {"seconds", "bytes"}: setting up and one run
serve    {"outputs": [names]}, then a list of times for each line {"warmup": SECONDS, "runs": N}
"""

import importlib
import json
import sys
import time

import numpy

def peak():
    """VmHWM is the peak of this program alone; ru_maxrss starts at that of who forked it."""
    with open("/proc/self/status", encoding="utf-8") as f:
        return next(int(line.split()[1]) * 1024 for line in f if line.startswith("VmHWM"))


def set_up_onnxruntime(package, order, inputs):
    """All optimizations, its own spinning; f32 wherever the model says float."""
    options = package.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = order["threads"], 1
    options.log_severity_level = 3
    for name, size in order["sizes"].items():
        options.add_free_dimension_override_by_name(name, size)
    session = package.InferenceSession(order["path"], options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return names, lambda: session.run(None, inputs)


def set_up_openvino(package, order, inputs):
    """Tuned for latency, one stream; arrays are shared with the request, so nothing is copied."""
    core = package.Core()
    model = core.read_model(order["path"])
    if order["shapes"]:
        model.reshape(order["shapes"])
    compiled = core.compile_model(model, "CPU", {
        "PERFORMANCE_HINT": "LATENCY", "NUM_STREAMS": 1,
        "INFERENCE_NUM_THREADS": order["threads"],
        "INFERENCE_PRECISION_HINT": order["precision"]})  # fmt: skip
    request = compiled.create_infer_request()
    names = [output.get_any_name() for output in compiled.outputs]

    def run():
        return list(request.infer(inputs, share_inputs=True, share_outputs=True).values())

    return names, run


SET_UP = {"onnxruntime": set_up_onnxruntime, "openvino": set_up_openvino}


def serve(names, run, results):
    outputs = [numpy.array(array) for array in run()]
    numpy.savez(results, **{str(i): array for i, array in enumerate(outputs)})
    print(json.dumps({"outputs": names}), flush=True)

    def timed():
        begin = time.perf_counter()
        run()
        return time.perf_counter() - begin

    for line in sys.stdin:
        wanted = json.loads(line)
        begin = time.perf_counter()
        timed()
        while time.perf_counter() - begin < wanted["warmup"]:
            timed()
        print(json.dumps([timed() for _ in range(wanted["runs"])]), flush=True)


def main():
    name, mode = sys.argv[1:3]
    package = importlib.import_module(name)
    if mode == "import":
        print(json.dumps({"bytes": peak()}))
        return
    order = json.loads(sys.argv[3])
    inputs = dict(numpy.load(order["inputs"]))
    begin = time.perf_counter()
    names, run = SET_UP[name](package, order, inputs)
    if mode == "serve":
        serve(names, run, order["results"])
        return
    run()
    print(json.dumps({"seconds": time.perf_counter() - begin, "bytes": peak()}))


if __name__ == "__main__":
    main()
