"""CUDA graphs by the driver's own calls, which torch's graphs hide: captured, instantiated, updated, launched."""

import torch
from cuda.bindings import driver


def checked(result):
    """Give what a call of the driver returned, if anything, past its error code."""
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values[0] if values else None


def capture(launch):
    """Record what `launch()` does on torch's current stream; nothing runs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        checked(driver.cuStreamBeginCapture(driver.CUstream(stream.cuda_stream), mode))
        try:
            launch()
        finally:
            graph = checked(driver.cuStreamEndCapture(driver.CUstream(stream.cuda_stream)))
    return graph


def instantiate(graph):
    """Make a graph that can be launched; it keeps nothing of the other."""
    return checked(driver.cuGraphInstantiate(graph, 0))


def replay(executable):
    """Launch on torch's current stream."""
    checked(driver.cuGraphLaunch(executable, driver.CUstream(torch.cuda.current_stream().cuda_stream)))


def update(executable, graph):
    """Give a graph that can be launched all parameters of another of the same shape."""
    checked(driver.cuGraphExecUpdate(executable, graph))


def kernel_nodes(graph):
    """List the launches of a graph."""
    _, count = checked_all(driver.cuGraphGetNodes(graph))
    nodes, _ = checked_all(driver.cuGraphGetNodes(graph, count))
    kernel = driver.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    return [node for node in nodes[:count] if checked(driver.cuGraphNodeGetType(node)) == kernel]


def checked_all(result):
    """Give all that a call of the driver returned past its error code."""
    code, *values = result
    assert code == driver.CUresult.CUDA_SUCCESS, code
    return values


def set_parameters(executable, node, other):
    """Give one launch of a graph the parameters of another launch."""
    parameters = checked(driver.cuGraphKernelNodeGetParams(other))
    checked(driver.cuGraphExecKernelNodeSetParams(executable, node, parameters))
